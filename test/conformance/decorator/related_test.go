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

package decorator

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	many     = 200
	matching = 20
)

// matchingTargetsOnly has 200 targets, each with one customize rule. 20 of the rules match one Secret.
func matchingTargetsOnly(t *testing.T, e *fixture.Environment) {
	for _, version := range []v1alpha1.HookVersion{v1alpha1.HookVersionV1, v1alpha1.HookVersionV2} {
		t.Run(string(version), func(t *testing.T) { relatedFanOut(t, e, version) })
	}
}

func relatedFanOut(t *testing.T, e *fixture.Environment, version v1alpha1.HookVersion) {
	s := newStage(t, e, nothing)
	s.Handle("/customize", hooktest.Customize(func(q *hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{RelatedResources: []hook.RelatedResourceRule{{
			APIVersion: "v1", Resource: "secrets", Namespace: s.Namespace, Names: []string{q.Parent.GetAnnotations()["wants"]},
		}}}, nil
	}))
	s.createTargets()
	for _, name := range []string{"shared", "unrelated"} {
		s.Selected(fixture.Secrets, name, nil)
	}
	s.run(func(spec *v1alpha1.DecoratorControllerSpec) {
		spec.Hooks.Customize = s.At("/customize")
		spec.Hooks.Customize.Version = &version
		spec.Hooks.Sync.Version = &version
	}, fixture.ConfigMaps)
	cluster.Eventually(t, limit, "a call for each target", func(context.Context) (bool, string) {
		n := len(s.script.Count())
		return n == many, fmt.Sprintf("%d targets called", n)
	})
	s.settled()

	customized := s.customizeCalls()
	s.script.Forget()
	s.Patch(fixture.Secrets, "unrelated", `{"metadata":{"labels":{"poke":"1"}}}`)
	if n := s.settled(); n != 0 {
		t.Errorf("a change of an object that nobody asked for called %d hooks", n)
	}
	// The event of this Secret comes after that of the other.
	s.Patch(fixture.Secrets, "shared", `{"metadata":{"labels":{"poke":"1"}}}`)
	cluster.Eventually(t, limit, "the matching targets to be called", func(context.Context) (bool, string) {
		n := s.script.All()
		return n >= matching, fmt.Sprintf("%d calls", n)
	})
	s.settled()
	calls := s.script.Count()
	if len(calls) != matching {
		t.Errorf("%d targets were called, want %d", len(calls), matching)
	}
	for name, n := range calls {
		if n != 1 {
			t.Errorf("the hook was called %d times for %s", n, name)
		}
	}
	if n := s.customizeCalls(); n != customized {
		t.Errorf("the customize hook was called %d times for changes of related objects", n-customized)
	}
}

// createTargets creates the ConfigMaps, some of which want the Secret that is shared.
func (s *stage) createTargets() {
	s.T.Helper()
	var running sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range many {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			wants := fmt.Sprintf("private-%d", i)
			if i%(many/matching) == 0 {
				wants = "shared"
			}
			_, err := s.Kube.CoreV1().ConfigMaps(s.Namespace).Create(s.T.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("target-%d", i), Labels: map[string]string{fixture.Label: s.Name},
				Annotations: map[string]string{"wants": wants},
			}, Immutable: new(false)}, metav1.CreateOptions{})
			if err != nil {
				s.T.Errorf("creating target %d: %v", i, err)
			}
		})
	}
	running.Wait()
}

func (s *stage) customizeCalls() int { return len(s.Requests("/customize")) }
