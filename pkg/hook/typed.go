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
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// FromTyped turns a typed object, for example an *appsv1.Deployment, into a child for a response. The object must carry
// apiVersion and kind.
//
// Typed objects encode fields that were never set: "status": {} and "creationTimestamp": null, the latter in templates too. A
// child must not name fields that it does not mean, since the server would hold the cluster to them; so the status and
// every null creationTimestamp are left out.
func FromTyped(typed runtime.Object) (*Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
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
