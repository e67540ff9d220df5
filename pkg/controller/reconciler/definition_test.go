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

package reconciler_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

func TestARunningControllerTakesUpItsBrakesAndNothingElse(t *testing.T) {
	guard := &v1alpha1.DeletionGuard{MaxDeletions: new(intstr.FromInt32(1))}
	composite := func(change func(*v1alpha1.CompositeController)) reconciler.Definition {
		c := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u"}}
		c.Spec.ParentResource.Resource = "things"
		change(c)
		return reconciler.OfComposite(c)
	}
	decorator := func(change func(*v1alpha1.DecoratorController)) reconciler.Definition {
		c := &v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: "d", UID: "u"}}
		change(c)
		return reconciler.OfDecorator(c)
	}
	former := map[bool]reconciler.Definition{
		true: composite(func(*v1alpha1.CompositeController) {}), false: decorator(func(*v1alpha1.DecoratorController) {}),
	}
	for name, tc := range map[string]struct {
		composite bool
		now       reconciler.Definition
		same      bool
	}{
		"nothing":        {true, composite(func(*v1alpha1.CompositeController) {}), true},
		"a pause":        {true, composite(func(c *v1alpha1.CompositeController) { c.Spec.Paused = new(true) }), true},
		"a guard":        {true, composite(func(c *v1alpha1.CompositeController) { c.Spec.DeletionGuard = guard }), true},
		"workers":        {true, composite(func(c *v1alpha1.CompositeController) { c.Spec.Workers = new(int32(1)) }), false},
		"a parent":       {true, composite(func(c *v1alpha1.CompositeController) { c.Spec.ParentResource.Resource = "others" }), false},
		"another object": {true, composite(func(c *v1alpha1.CompositeController) { c.UID = "other" }), false},
		"a pause and more": {true, composite(func(c *v1alpha1.CompositeController) {
			c.Spec.Paused, c.Spec.GenerateSelector = new(true), new(true)
		}), false},
		"both of a decorator": {false, decorator(func(c *v1alpha1.DecoratorController) {
			c.Spec.Paused, c.Spec.DeletionGuard = new(true), guard
		}), true},
		"a resource of a decorator": {false, decorator(func(c *v1alpha1.DecoratorController) {
			c.Spec.Resources = []v1alpha1.DecoratorControllerResourceRule{{AllowDelete: new(true)}}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.now.SameSpec(former[tc.composite]); got != tc.same {
				t.Errorf("the instance of before goes on: %v, want %v", got, tc.same)
			}
		})
	}
	paused := composite(func(c *v1alpha1.CompositeController) { c.Spec.Paused = new(true) })
	if !paused.Paused || former[true].Paused || paused.KubectlName() != "compositecontroller/c" {
		t.Errorf("%s is paused: %v, and before: %v", paused.KubectlName(), paused.Paused, former[true].Paused)
	}
}
