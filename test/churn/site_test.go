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

package churn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// A site is where the churn takes place.
type site struct {
	tally

	t *fixture.Test
	// hooks are by kind; customize is for both.
	hooks     map[fixture.Kind]*v1alpha1.Hook
	customize *v1alpha1.Hook
	// running are the controllers' names by slot, empty where there is none. A slot has one worker.
	running [controllerSlots]string
	named   atomic.Int64
}

// kindOf is the kind of the controllers of a slot.
func kindOf(slot int) fixture.Kind {
	if slot/controllerWorkers%2 == 0 {
		return fixture.Composite
	}
	return fixture.Decorator
}

func newSite(t *fixture.Test) *site {
	s := &site{t: t, hooks: map[fixture.Kind]*v1alpha1.Hook{}}
	for _, kind := range []fixture.Kind{fixture.Composite, fixture.Decorator} {
		script := t.NewScript(kind)
		script.Respond(s.respond(kind))
		s.hooks[kind] = t.Serve(tagged(script))
		if kind == fixture.Decorator {
			s.hooks[kind].Webhook.Etag = &v1alpha1.WebhookEtagConfig{Enabled: new(true)}
		}
	}
	t.Create(fixture.ConfigMaps, fixture.ConfigMap("related", nil))
	s.customize = t.Serve(hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{RelatedResources: []hook.RelatedResourceRule{{APIVersion: "v1", Resource: "configmaps", Names: []string{"related"}}}}, nil
	}))
	return s
}

// tagged adds an entity tag that is different for each response.
func tagged(h http.Handler) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, n.Add(1)))
		h.ServeHTTP(w, r)
	})
}

// respond wants a ConfigMap for each parent and kind. Some calls fail and some ask for another.
func (s *site) respond(kind fixture.Kind) func(*fixture.Call) (*fixture.Reply, error) {
	return func(c *fixture.Call) (*fixture.Reply, error) {
		if rand.IntN(20) == 0 {
			return nil, fmt.Errorf("one of twenty calls fails")
		}
		if c.Finalizing {
			return &fixture.Reply{Finalized: true}, nil
		}
		n := fixture.Value(c.Parent, "spec", "n")
		// The attachments of a decorator stay when it is deleted, and no other takes them over.
		name := c.Parent.GetName()
		if kind == fixture.Decorator {
			name += "-" + c.Controller
		}
		child := fixture.ConfigMap(name, map[string]any{"n": n, "large": strings.Repeat("x", 2<<10)})
		reply := &fixture.Reply{Children: []*hook.Object{child}}
		if rand.IntN(10) == 0 {
			reply.ResyncAfterSeconds = 0.5
		}
		if kind == fixture.Composite {
			reply.Status = map[string]any{"n": n}
		}
		return reply, nil
	}
}

func parentName(slot int) string { return fmt.Sprintf("p%02d", slot) }

// labels has the parents of a slot selected by the controllers of some slots.
func labels(slot int, selected bool) map[string]any {
	all := map[string]any{}
	for c := range controllerSlots {
		all[slotLabel(c)] = "no"
		// Every parent has one composite at most and up to two decorators.
		if selected && (kindOf(c) == fixture.Decorator && (slot+c)%2 == 0 || kindOf(c) == fixture.Composite && slot%controllerSlots == c) {
			all[slotLabel(c)] = "yes"
		}
	}
	return all
}

func slotLabel(slot int) string { return fmt.Sprintf("churn.example.com/slot-%d", slot) }

// check fails the test unless an error is one that other workers, or controllers, bring about.
func (s *site) check(what string, err error) bool {
	if err == nil {
		return true
	}
	if !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
		s.t.T.Errorf("%s: %v", what, err)
	}
	return false
}

func (s *site) changeParent(ctx context.Context, slot int) {
	things, name := s.t.Resource(fixture.Things), parentName(slot)
	switch rand.IntN(10) {
	case 0:
		s.deleteParent(ctx, slot)
	case 1:
		patch := fmt.Appendf(nil, `{"metadata":{"labels":%s}}`, encode(labels(slot, rand.IntN(2) == 0)))
		_, err := things.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if s.check("deselecting a parent", err) {
			s.deselected.Add(1)
		}
	default:
		patch := fmt.Appendf(nil, `{"spec":{"n":"%d"}}`, rand.IntN(1<<20))
		_, err := things.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if s.check("changing a parent", err) {
			s.changed.Add(1)
		} else if apierrors.IsNotFound(err) {
			_, err := things.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": fixture.Things.GroupVersion().String(), "kind": "Thing",
				"metadata": map[string]any{"name": name, "labels": labels(slot, true)}, "spec": map[string]any{"n": "0"},
			}}, metav1.CreateOptions{})
			if s.check("creating a parent", err) {
				s.created.Add(1)
			}
		}
	}
}

func (s *site) deleteParent(ctx context.Context, slot int) {
	err := s.t.Resource(fixture.Things).Delete(ctx, parentName(slot), metav1.DeleteOptions{})
	if s.check("deleting a parent", err) {
		s.deleted.Add(1)
	}
}

func (s *site) changeController(ctx context.Context, slot int) {
	switch {
	case s.running[slot] == "":
		s.createController(ctx, slot)
	case rand.IntN(2) == 0:
		s.deleteController(ctx, slot)
	default:
		patch := fmt.Appendf(nil, `{"spec":{"resyncPeriodSeconds":%d}}`, 1+rand.IntN(1000))
		var err error
		if api := s.t.Versioned.MetacontrollerV1alpha1(); kindOf(slot) == fixture.Composite {
			_, err = api.CompositeControllers().Patch(ctx, s.running[slot], types.MergePatchType, patch, metav1.PatchOptions{})
		} else {
			_, err = api.DecoratorControllers().Patch(ctx, s.running[slot], types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if s.check("editing a controller", err) {
			s.controllersEdited.Add(1)
		}
	}
}

// createController creates a controller whose name was never there before.
func (s *site) createController(ctx context.Context, slot int) {
	kind := kindOf(slot)
	d := fixture.Definition{
		Kind: kind, Name: fmt.Sprintf("churn-%d", s.named.Add(1)), Selector: map[string]string{slotLabel(slot): "yes"},
		Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}}, Sync: s.hooks[kind],
	}
	if rand.IntN(2) == 0 {
		d.Finalize = s.hooks[kind]
	}
	if rand.IntN(2) == 0 {
		d.Customize = s.customize
	}
	meta := metav1.ObjectMeta{Name: d.Name}
	var err error
	if api := s.t.Versioned.MetacontrollerV1alpha1(); kind == fixture.Composite {
		_, err = api.CompositeControllers().Create(ctx, &v1alpha1.CompositeController{ObjectMeta: meta, Spec: s.t.CompositeSpec(d)}, metav1.CreateOptions{})
	} else {
		_, err = api.DecoratorControllers().Create(ctx, &v1alpha1.DecoratorController{ObjectMeta: meta, Spec: s.t.DecoratorSpec(d)}, metav1.CreateOptions{})
	}
	if s.check("creating a controller", err) {
		s.running[slot] = d.Name
		s.controllersCreated.Add(1)
	}
}

func (s *site) deleteController(ctx context.Context, slot int) {
	name := s.running[slot]
	if name == "" {
		return
	}
	var err error
	if api := s.t.Versioned.MetacontrollerV1alpha1(); kindOf(slot) == fixture.Composite {
		err = api.CompositeControllers().Delete(ctx, name, metav1.DeleteOptions{})
	} else {
		err = api.DecoratorControllers().Delete(ctx, name, metav1.DeleteOptions{})
	}
	if s.check("deleting a controller", err) {
		s.controllersDeleted.Add(1)
	}
	if err == nil || apierrors.IsNotFound(err) {
		s.running[slot] = ""
	}
}
