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

package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// FromTyped turns a typed object, for example an *appsv1.Deployment, into a child for a response. The object must carry
// apiVersion and kind.
//
// Typed objects encode fields that were never set: "status": {} and "creationTimestamp": null, the latter in templates too. A
// child must not name fields that it does not mean, since the server would hold the cluster to them; so the status and
// every null creationTimestamp are left out.
//
// An [Object], too, is taken, and the child is a copy of it with the types that JSON has: an int becomes an int64. The argument is not
// modified. A nil one, a nil pointer among them, is an error.
func FromTyped(typed runtime.Object) (*Object, error) {
	if v := reflect.ValueOf(typed); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("there is no object to convert: it is nil")
	}
	content, err := contentOf(typed)
	if err != nil {
		return nil, fmt.Errorf("converting %T: %w", typed, err)
	}
	o := &unstructured.Unstructured{Object: content}
	if o.GetAPIVersion() == "" || o.GetKind() == "" {
		return nil, errors.New("the object has no apiVersion or no kind; set its TypeMeta")
	}
	delete(content, "status")
	dropUnsetTimestamps(content)
	return o, nil
}

// contentOf returns the fields of an object, which share nothing with it.
func contentOf(typed runtime.Object) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if _, ok := typed.(runtime.Unstructured); !ok || err != nil {
		return content, err
	}
	// DeepCopy panics when it meets an int or a []string, which authors write.
	encoded, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	var decoded map[string]any
	err = utiljson.Unmarshal(encoded, &decoded)
	return decoded, err
}

// dropUnsetTimestamps removes every creationTimestamp that is null, at any depth.
func dropUnsetTimestamps(value any) {
	switch v := value.(type) {
	case map[string]any:
		if t, ok := v["creationTimestamp"]; ok && t == nil {
			delete(v, "creationTimestamp")
		}
		for _, item := range v {
			dropUnsetTimestamps(item)
		}
	case []any:
		for _, item := range v {
			dropUnsetTimestamps(item)
		}
	}
}
