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
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Object is any Kubernetes object, of a kind that the protocol does not know.
type Object = unstructured.Unstructured

// ObjectMap holds observed objects by type and then by name.
//
// The outer key is kind, a dot, and the apiVersion of the rule that names the type, such as "Pod.v1" or
// "Deployment.apps/v1". There is an entry for each rule, even when no object was found, but none for a kind of children or
// attachments that the cluster does not serve. In Go, [TypeKey] makes the key.
//
// The inner key depends on the version of the hook that is called and on the scope of the parent (docs/reference/contract.md#s9):
//
//   - A cluster-scoped object has its name for a key, a namespaced object "namespace/name"; except that,
//   - in v1, with a namespaced parent, an object of the parent's namespace has its name alone for a key, and objects of
//     other namespaces and cluster-scoped objects are left out.
type ObjectMap map[string]map[string]*Object

// TypeKey returns the outer key under which an [ObjectMap] holds the objects of a kind. The apiVersion is as in the
// object and as in the controller's rule, for example "v1" or "apps/v1".
func TypeKey(apiVersion, kind string) string {
	return kind + "." + apiVersion
}

// OfType returns the objects of a type by inner key. It is nil when no rule names the type.
func (m ObjectMap) OfType(apiVersion, kind string) map[string]*Object {
	return m[TypeKey(apiVersion, kind)]
}

// Find returns the object of that type, namespace and name, or nil. The namespace is empty for a cluster-scoped object.
// It looks at the objects themselves, so that it finds them in both versions of the protocol.
func (m ObjectMap) Find(apiVersion, kind, namespace, name string) *Object {
	objects := m.OfType(apiVersion, kind)
	for _, key := range []string{namespace + "/" + name, name} {
		if o := objects[key]; o != nil && o.GetNamespace() == namespace && o.GetName() == name {
			return o
		}
	}
	return nil
}

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

// Name names one of the hooks of a controller. It is the field under spec.hooks that declares the hook.
type Name string

const (
	// Sync returns the desired state of a parent's children, or of a target's attachments.
	Sync Name = "sync"
	// Finalize is called in place of Sync while a parent is being deleted or is no longer selected.
	Finalize Name = "finalize"
	// Customize selects the other objects that a parent's sync is shown.
	Customize Name = "customize"
)

// MaxDelay is the longest time after which a hook can be called again at its own wish: a longer resyncAfterSeconds or Retry-After
// counts as this.
const MaxDelay = 365 * 24 * time.Hour

// A RejectedError says that the hook returned and that the response cannot be used. Nothing of it is applied. Another
// call is of no use before the hook or its input changes.
type RejectedError struct {
	// Field is the place in the response, such as "children[2]" or "status". Empty: the response as a whole.
	Field string
	// Detail says what is wrong and, where that is not obvious, what to do.
	Detail string
}

// Error returns one sentence without the name of the hook, which the caller knows.
func (e *RejectedError) Error() string {
	if e.Field == "" {
		return e.Detail
	}
	return e.Field + ": " + e.Detail
}

// FailureReason returns Response, by which metrics count the error.
func (*RejectedError) FailureReason() string { return "Response" }

// IsRejected reports whether err is or wraps a [RejectedError].
func IsRejected(err error) bool {
	_, ok := errors.AsType[*RejectedError](err)
	return ok
}
