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

package rollback

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

func TestPrintedRollbacks(t *testing.T) {
	object := controllerobject.Object{Composite: &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}
	changed := &v1alpha1.ControllerRollbackStatus{Revision: "old", From: "new", Changes: []v1alpha1.FieldChange{
		{Path: "spec.image", Observed: new(`"b"`), Desired: new(`"a"`)}, {Path: "spec.extra", Observed: new("1")},
	}}
	for name, tc := range map[string]struct {
		dryRun bool
		done   *v1alpha1.ControllerRollbackStatus
		want   string
	}{
		"done": {false, changed, `shop/a is rolled back from revision new to old:
  spec.image: "b" -> "a"
  spec.extra: 1 -> absent
See how its children follow with: kubectl metacontroller parents cc/web shop/a
`},
		"a dry run": {true, changed, `shop/a would be rolled back from revision new to old:
  spec.image: "b" -> "a"
  spec.extra: 1 -> absent
Nothing is written. What the children would become by that is not shown; they follow in a rolling update.
`},
		"nothing to do": {
			false, &v1alpha1.ControllerRollbackStatus{Revision: "new", From: "new"}, "shop/a has the fields of revision new already: nothing is written.\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			(&options{dryRun: tc.dryRun}).print(&out, object, "shop/a", tc.done)
			if out.String() != tc.want {
				t.Errorf("printed\n%s\nwant\n%s", out.String(), tc.want)
			}
		})
	}
}

func TestARollbackThatAdmissionTookBackIsAnError(t *testing.T) {
	const controller = "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/web"
	cluster := connectiontest.Documents{
		"/api":  `{"kind":"APIVersions","versions":[]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		controller: `{"kind":"CompositeController","apiVersion":"metacontroller.k8s.io/v1alpha1","metadata":{"name":"web"},` +
			`"spec":{"parentResource":{"apiVersion":"example.com/v1","resource":"websites"}}}`,
		controller + "/rollback": `{"kind":"ControllerRollback","apiVersion":"metacontroller.k8s.io/v1alpha1","status":{"revision":"old","from":"new"}}`,
	}
	printed, err := connectiontest.Run(t, NewCommand, cluster, "cc/web", "shop/a")
	if printed != "" || err == nil || !strings.HasPrefix(err.Error(), "shop/a is still on revision new") {
		t.Errorf("printed %q, error %v", printed, err)
	}
}
