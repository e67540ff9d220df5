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

package controllerrevision_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controllerrevision"
)

func TestOnlyTheServerChangesAPatch(t *testing.T) {
	by := func(name string, groups ...string) context.Context {
		return request.WithUser(t.Context(), &user.DefaultInfo{Name: name, Groups: groups})
	}
	for name, test := range map[string]struct {
		ctx      context.Context
		patch    string
		children []v1alpha1.ControllerRevisionChildren
		want     string
	}{
		"the server repairs it":              {ctx: by("system:apiserver", "system:masters"), patch: `{"spec":{"a":3}}`},
		"an administrator may not":           {ctx: by("root", "system:masters"), patch: `{"spec":{"a":3}}`, want: "parentPatch: Forbidden: may not change; only this server writes it"},
		"nor does a name alone help":         {ctx: by("system:apiserver"), patch: `{"spec":{"a":3}}`, want: "parentPatch: Forbidden: may not change; only this server writes it"},
		"nor being nobody":                   {ctx: t.Context(), patch: `{"spec":{"a":3}}`, want: "parentPatch: Forbidden: may not change; only this server writes it"},
		"the order of fields does not count": {ctx: by("eve"), patch: `{"spec":{"b":2,"a":1}}`},
		"children may change":                {ctx: by("eve"), patch: `{"spec":{"a":1,"b":2}}`, children: []v1alpha1.ControllerRevisionChildren{{Kind: "Pod", Names: []string{"a"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			old := &metacontroller.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}, ParentPatch: runtime.RawExtension{Raw: []byte(`{"spec":{"a":1,"b":2}}`)}}
			changed := old.DeepCopy()
			changed.ParentPatch.Raw, changed.Children = []byte(test.patch), test.children
			errs := controllerrevision.NewStrategy(runtime.NewScheme()).ValidateUpdate(test.ctx, changed, old)
			got := ""
			if err := errs.ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
