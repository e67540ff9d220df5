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

package wire

import (
	"encoding/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// keyFormat is how objects are keyed within their type (docs/reference/contract.md#s9, "Inner key").
type keyFormat struct {
	version         v1alpha1.HookVersion
	parentNamespace string
}

// LeavesOut reports whether requests of a version about a parent of a namespace leave out an object of another namespace, or of none.
func LeavesOut(version v1alpha1.HookVersion, parentNamespace, namespace string) bool {
	return version != v1alpha1.HookVersionV2 && parentNamespace != "" && namespace != parentNamespace
}

// key returns the key of o, and whether o is shown at all. In v1 a namespaced parent sees its own namespace only.
func (f keyFormat) key(o Object) (key string, shown bool) {
	namespace, name := o.Namespace(), o.Name()
	if f.version != v1alpha1.HookVersionV2 && f.parentNamespace != "" {
		return name, !LeavesOut(f.version, f.parentNamespace, namespace)
	}
	if namespace == "" {
		return name, true
	}
	return namespace + "/" + name, true
}

// appendString appends s as a JSON string. Nearly all names need no escapes; the few that do (an RBAC name may hold a
// quote) are left to encoding/json.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			if err != nil { // not possible for a string
				return append(b, `""`...)
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
