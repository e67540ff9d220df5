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

// plainMetadata reports whether metadata is as a server would encode it, so that decoding it into its Go type and back, which is
// slow, would change nothing.
func plainMetadata(meta value.Object) bool {
	for k, v := range meta {
		switch k {
		case "name", "namespace", "uid", "resourceVersion", "generateName":
			if s, ok := v.(string); !ok || s == "" {
				return false
			}
		case "generation", "deletionGracePeriodSeconds":
			if n, ok := v.(int64); !ok || n == 0 && k == "generation" {
				return false
			}
		case "creationTimestamp", "deletionTimestamp":
			if s, ok := v.(string); !ok || !plainTime(s) {
				return false
			}
		case "labels", "annotations":
			if !plainTexts(v) {
				return false
			}
		case "finalizers":
			if !plainList(v, func(e any) bool { _, ok := e.(string); return ok }) {
				return false
			}
		case "ownerReferences":
			if !plainList(v, plainOwner) {
				return false
			}
		case "managedFields":
			if !plainList(v, plainManaged) {
				return false
			}
		default:
			return false
		}
	}
	return true
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

func plainManaged(e any) bool {
	m, ok := e.(value.Object)
	if !ok {
		return false
	}
	for k, v := range m {
		switch k {
		case "manager", "operation", "apiVersion", "fieldsType", "subresource":
			if s, ok := v.(string); !ok || s == "" {
				return false
			}
		case "time":
			if s, ok := v.(string); !ok || !plainTime(s) {
				return false
			}
		case "fieldsV1":
			if _, ok := v.(value.Object); !ok {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// plainTime reports whether a time has the form 2006-01-02T15:04:05Z.
func plainTime(s string) bool {
	const form = "0000-00-00T00:00:00Z"
	if len(s) != len(form) {
		return false
	}
	for i := range len(s) {
		if form[i] == '0' && (s[i] < '0' || s[i] > '9') || form[i] != '0' && s[i] != form[i] {
			return false
		}
	}
	return true
}
