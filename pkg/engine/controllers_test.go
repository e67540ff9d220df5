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

package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/leaderelection"
)

func nothing(context.Context, *CompositeRequest) (*CompositeResponse, error) {
	return &CompositeResponse{}, nil
}

func rule(version, resource string) v1alpha1.ResourceRule {
	return v1alpha1.ResourceRule{APIVersion: version, Resource: resource}
}

func composite(name string, change func(*v1alpha1.CompositeController)) *v1alpha1.CompositeController {
	c := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.CompositeControllerSpec{
		ParentResource:   v1alpha1.CompositeControllerParentResourceRule{ResourceRule: rule("example.com/v1", "websites")},
		ChildResources:   []v1alpha1.CompositeControllerChildResourceRule{{ResourceRule: rule("v1", "configmaps")}},
		GenerateSelector: new(true),
	}}
	if change != nil {
		change(c)
	}
	return c
}

func decorator(name string) *v1alpha1.DecoratorController {
	return &v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.DecoratorControllerSpec{
		Resources: []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: rule("v1", "services")}},
	}}
}

func TestNewSaysAllThatIsWrong(t *testing.T) {
	hooked := func(sync *v1alpha1.Hook) *v1alpha1.CompositeController {
		return composite("a", func(c *v1alpha1.CompositeController) { c.Spec.Hooks = &v1alpha1.CompositeControllerHooks{Sync: sync} })
	}
	for name, tc := range map[string]struct {
		options Options
		want    []string
	}{
		"no controller":    {Options{}, []string{"there is no controller to run"}},
		"no object":        {Options{Composites: []Composite{{}}, Decorators: []Decorator{{}}}, []string{"no Controller in Composites[0]", "no Controller in Decorators[0]"}},
		"no function":      {Options{Composites: []Composite{{Controller: composite("a", nil)}}}, []string{"CompositeController a is invalid: spec.hooks.sync: Required value: give"}},
		"no function here": {Options{Decorators: []Decorator{{Controller: decorator("a")}}}, []string{"DecoratorController a is invalid: spec.hooks.sync: Required value: give"}},
		"a webhook": {
			Options{Composites: []Composite{{Controller: hooked(&v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://a.b/sync")}})}}},
			[]string{"spec.hooks.sync.webhook: Forbidden: an engine in a Go program calls no webhooks"},
		},
		"an inline hook beside a function": {
			Options{Composites: []Composite{{Controller: hooked(&v1alpha1.Hook{Inline: &v1alpha1.InlineHook{}}), Sync: nothing}}},
			[]string{"spec.hooks.sync.inline: Forbidden: there is a function for this hook, too"},
		},
		"a name twice": {
			Options{Composites: []Composite{{Controller: composite("a", nil), Sync: nothing}, {Controller: composite("a", nil), Sync: nothing}}},
			[]string{`metadata.name: Duplicate value: "a"`},
		},
		"a name twice, with inline hooks": {
			Options{Composites: []Composite{{Controller: hooked(&v1alpha1.Hook{Inline: &v1alpha1.InlineHook{}})}, {Controller: composite("a", nil), Sync: nothing}}},
			[]string{`metadata.name: Duplicate value: "a"`},
		},
		"what validation and the generated one find, of two controllers": {
			Options{Composites: []Composite{
				{Controller: composite("A", nil), Sync: nothing},
				{Controller: composite("b", func(c *v1alpha1.CompositeController) { c.Spec.ParentResource.Resource = "" }), Sync: nothing},
			}},
			[]string{"CompositeController A is invalid: metadata.name: Invalid value", "CompositeController b is invalid: spec.parentResource.resource: Required value"},
		},
		"no name": {Options{Composites: []Composite{{Controller: composite("", nil), Sync: nothing}}}, []string{"the CompositeController without a name is invalid: "}},
		"a timeout without end": {
			Options{Composites: []Composite{{Controller: composite("a", nil), Sync: nothing, Timeout: 2 * time.Hour}}},
			[]string{"spec.hooks.sync.webhook.timeout: Invalid value", "must be no more than 1h"},
		},
		"a Lease without a namespace": {
			Options{Composites: []Composite{{Controller: composite("a", nil), Sync: nothing}}, Lease: "websites"}, []string{"a Lease needs a Namespace"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, tc.options)
			if err == nil {
				t.Fatal("there is no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error is\n%v\nwithout %q", err, want)
				}
			}
		})
	}
}

func TestNewNeedsAConfig(t *testing.T) {
	if _, err := New(nil, Options{Composites: []Composite{{Controller: composite("a", nil), Sync: nothing}}}); err == nil {
		t.Error("there is no error")
	}
}

// TestAnEngineThatDoesNotStopIsUnhealthy has the Lease lost, and Run not return because a function does not.
func TestAnEngineThatDoesNotStopIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{}
		e.running.Store(true)
		e.lost.Store(new(time.Now()))
		time.Sleep(stopLimit) //nolint:forbidigo // It is the time of a bubble.
		if err := e.Healthy(nil); err != nil {
			t.Errorf("while it stops, it says %v", err)
		}
		time.Sleep(time.Second) //nolint:forbidigo // It is the time of a bubble.
		if err := e.Healthy(nil); !errors.Is(err, leaderelection.ErrLost) {
			t.Errorf("when it has not stopped, it says %v", err)
		}
	})
}

func TestDefinitionsHaveDefaultsAndLeaveTheProgramsObjectsAlone(t *testing.T) {
	given := composite("a", nil)
	before := given.DeepCopy()
	d, err := define(t.Context(), []Composite{{Controller: given, Sync: nothing, Customize: func(context.Context, *CustomizeRequest) (*CustomizeResponse, error) {
		return &CustomizeResponse{}, nil
	}}}, []Decorator{{Controller: decorator("a"), Sync: func(context.Context, *DecoratorRequest) (*DecoratorResponse, error) {
		return &DecoratorResponse{}, nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, given); diff != "" {
		t.Errorf("the object of the program changed:\n%s", diff)
	}
	if len(d.warnings) > 0 {
		t.Errorf("warnings of nothing: %q", d.warnings)
	}
	if len(d.functions) != 3 || len(d.objects) != 2 {
		t.Errorf("got %d functions and %d objects", len(d.functions), len(d.objects))
	}
	hooks := d.objects[0].(*v1alpha1.CompositeController).Spec.Hooks
	if want := "http://function.invalid/compositecontroller/a/sync"; *hooks.Sync.Webhook.URL != want || *hooks.Sync.Version != v1alpha1.HookVersionV2 || hooks.Finalize != nil {
		t.Errorf("got %+v, want a sync hook at %s and no finalize hook", hooks, want)
	}
}

func TestWarningsAreKept(t *testing.T) {
	d, err := define(t.Context(), []Composite{{Controller: composite("a", func(c *v1alpha1.CompositeController) {
		c.Spec.ParentResource.RevisionHistory = &v1alpha1.CompositeControllerRevisionHistory{FieldPaths: []string{"spec"}}
	}), Sync: nothing}}, nil)
	if err != nil || len(d.warnings) != 1 || !strings.HasPrefix(d.warnings[0], "CompositeController a: spec.parentResource.revisionHistory.fieldPaths: has no effect") {
		t.Errorf("got %q, %v", d.warnings, err)
	}
}
