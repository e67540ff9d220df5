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

package inspect

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// The generic server converts the objects of rows to the version of the API, or takes the metadata of them.
func TestRowsHaveTheObjectsThatTheOptionsAskFor(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	p := thing("one", "a").ParentReference
	for name, tc := range map[string]struct {
		converter rest.TableConvertor
		list      runtime.Object
	}{
		"parents": {&ParentsREST{}, &v1alpha1.ControllerParentList{Items: []v1alpha1.ControllerParent{{ParentReference: p}}}},
		"syncs":   {&SyncsREST{}, &v1alpha1.ControllerSyncList{Items: []v1alpha1.ControllerSync{{ParentReference: p}}}},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := tc.converter.ConvertToTable(t.Context(), tc.list, &metav1.TableOptions{IncludeObject: metav1.IncludeObject})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := scheme.ConvertToVersion(table.Rows[0].Object.Object, v1alpha1.SchemeGroupVersion); err != nil {
				t.Errorf("objects: %v", err)
			}
			table, err = tc.converter.ConvertToTable(t.Context(), tc.list, &metav1.TableOptions{IncludeObject: metav1.IncludeMetadata})
			if err != nil {
				t.Fatal(err)
			}
			if o, err := meta.Accessor(table.Rows[0].Object.Object); err != nil || o.GetNamespace() != "one" || o.GetName() != "a" {
				t.Errorf("metadata: %v, error %v", o, err)
			}
		})
	}
}
