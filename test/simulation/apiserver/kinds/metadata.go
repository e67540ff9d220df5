/*
Copyright The Metacontroller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package kinds

import (
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// plainFields are the fields of metadata, with what a server would encode them as.
var plainFields = map[string]func(any) bool{
	"name": plainName, "namespace": plainName, "uid": plainName, "resourceVersion": plainName, "generateName": plainName,
	"generation":                 func(v any) bool { n, ok := v.(int64); return ok && n != 0 },
	"deletionGracePeriodSeconds": func(v any) bool { _, ok := v.(int64); return ok },
	"creationTimestamp":          plainTime, "deletionTimestamp": plainTime,
	"labels": plainTexts, "annotations": plainTexts,
	"finalizers":      func(v any) bool { return plainList(v, func(e any) bool { _, ok := e.(string); return ok }) },
	"ownerReferences": func(v any) bool { return plainList(v, plainOwner) },
}

// plainMetadata reports whether metadata without managedFields is as a server would encode it, so that decoding it into its Go type
// and back, which is slow, would change nothing.
func plainMetadata(meta value.Object) bool {
	for k, v := range meta {
		if plain, ok := plainFields[k]; !ok || !plain(v) {
			return false
		}
	}
	return true
}

func plainName(v any) bool {
	s, ok := v.(string)
	return ok && s != ""
}

func plainTexts(v any) bool {
	m, ok := v.(value.Object)
	if !ok || len(m) == 0 {
		return false
	}
	for _, text := range m {
		if _, ok := text.(string); !ok {
			return false
		}
	}
	return true
}

func plainList(v any, plain func(any) bool) bool {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return false
	}
	for _, e := range list {
		if !plain(e) {
			return false
		}
	}
	return true
}

func plainOwner(e any) bool {
	m, ok := e.(value.Object)
	if !ok {
		return false
	}
	required := 0
	for k, v := range m {
		switch k {
		case "apiVersion", "kind", "name", "uid":
			if _, ok := v.(string); !ok {
				return false
			}
			required++
		case "controller", "blockOwnerDeletion":
			if _, ok := v.(bool); !ok {
				return false
			}
		default:
			return false
		}
	}
	return required == 4
}

// plainTime reports whether a time has the form 2006-01-02T15:04:05Z.
func plainTime(v any) bool {
	const form = "0000-00-00T00:00:00Z"
	s, ok := v.(string)
	if !ok || len(s) != len(form) {
		return false
	}
	for i := range len(s) {
		if form[i] == '0' && (s[i] < '0' || s[i] > '9') || form[i] != '0' && s[i] != form[i] {
			return false
		}
	}
	return true
}
