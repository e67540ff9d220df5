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

package releasefinalizers

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

func TestWhichFinalizersAreMeant(t *testing.T) {
	meta := &metav1.ObjectMeta{Name: "web", Namespace: "team", UID: "uid", Finalizers: []string{
		"metacontroller.io/compositecontroller-web", "foregroundDeletion", "metacontroller.io/decoratorcontroller-web",
		"metacontroller.io/compositecontroller-other", "metacontroller.io/compositecontroller-", "example.com/compositecontroller-web",
	}}
	for name, test := range map[string]struct {
		wanted []controllerobject.Reference
		want   []string
	}{
		"All": {nil, []string{
			"metacontroller.io/compositecontroller-web", "metacontroller.io/decoratorcontroller-web", "metacontroller.io/compositecontroller-other",
		}},
		"ANameOfBothKinds": {
			[]controllerobject.Reference{{Name: "web"}},
			[]string{"metacontroller.io/compositecontroller-web", "metacontroller.io/decoratorcontroller-web"},
		},
		"OneKind":  {[]controllerobject.Reference{{Kind: controllerobject.Decorator, Name: "web"}}, []string{"metacontroller.io/decoratorcontroller-web"}},
		"NoneHere": {[]controllerobject.Reference{{Kind: controllerobject.Decorator, Name: "other"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, o := range objectsOf(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "websites"}, meta, test.wanted) {
				got = append(got, o.finalizer)
				if o.String() != "websites.example.com/web in namespace team" {
					t.Errorf("it is called %s", &o)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
