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

package status

import (
	"bytes"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// synced has a hook fail, and then work, for a parent in which the condition Synced is kept.
func synced(s *stage) {
	keep := []v1alpha1.ParentCondition{v1alpha1.ParentConditionSynced}
	d := s.behaves(func(c *fixture.Call) (*fixture.Reply, error) {
		if fixture.Value(c.Parent, "spec", "n") == "0" {
			return nil, errors.New("not yet")
		}
		return &fixture.Reply{Status: map[string]any{"done": "yes"}}, nil
	}, fails0, `{}`)
	d.Finalize = nil
	d.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) { spec.ParentResource.Conditions = keep }
	d.EditDecorator = func(spec *v1alpha1.DecoratorControllerSpec) { spec.Resources[0].Conditions = keep }
	s.Run(d)
	s.Parent("p", map[string]any{"n": "0"})
	await := func(status metav1.ConditionStatus, reason, part string) {
		s.Await(fixture.Things, "p", "to say "+reason, func(o *unstructured.Unstructured) bool {
			text, current := fixture.Condition(o, "Synced")
			return current && strings.HasPrefix(text, string(status)+" "+reason+" ") && strings.Contains(text, part)
		})
	}
	await(metav1.ConditionFalse, "Failing", "not yet")
	s.Patch(fixture.Things, "p", `{"spec":{"n":"1"}}`)
	await(metav1.ConditionTrue, "Synced", "ended well")
	s.Settle()
	before := len(s.Requests("/sync"))
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	await(metav1.ConditionTrue, "Synced", "ended well")
	s.Settle()
	requests := s.Requests("/sync")
	// The status of the composite has a generation, which the hook is shown when it was written.
	if calls := len(requests) - before; !s.inline && (calls < 1 || calls > 2 || s.kind == fixture.Decorator && calls > 1) {
		s.T.Errorf("the hook was called %d times for one change", calls)
	}
	for _, r := range requests {
		if bytes.Contains(r.Body, []byte(`"Failing"`)) || bytes.Contains(r.Body, []byte(`"type":"Synced"`)) {
			s.T.Fatalf("the hook was shown the condition: %s", r.Body)
		}
	}
	if o := s.Get(fixture.Things, "p"); fixture.Value(o, "status", "done") != "yes" {
		s.T.Errorf("the status of the hook is not there: %v", o.Object["status"])
	}
}
