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

// Package churn creates, changes, deselects and deletes parents and controllers of both kinds for a while, and checks that the
// server then remembers nothing of them: `make churn` does so for ten minutes.
package churn

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

var duration = flag.Duration("churn.duration", 0, "how long to churn; zero is a fixed number of changes")

const (
	// limit is for a machine that is busy with other tests: a minute without an answer of an API server is followed by long back-offs.
	limit = 6 * time.Minute
	// rounds are of equal length. The first one is the warm-up: what it leaves is what the other one must leave.
	rounds = 2
	// roundChanges and roundControllers are how many changes of parents and of controllers a round has when it has no duration.
	roundChanges, roundControllers = 250, 12
	// controllerSlots and parentSlots are how many of them there are at most at a time.
	controllerSlots, parentSlots = 8, 60
	// parentWorkers and controllerWorkers act at the same time, each on slots of its own.
	parentWorkers, controllerWorkers = 4, 2

	// parentPause lets the server work between changes, several of which it would see as one otherwise. A round has its changes of
	// controllers in the same time.
	parentPause = 10 * time.Millisecond
	// controllerPause lets controllers work before they are changed again.
	controllerPause = 100 * time.Millisecond

	// A server that leaks one thing for each object is far above these: a round has thousands of changes in a long run.
	// Outside of the engine's own code, the API server gets watches of kube-controller-manager in its first minutes, and two
	// residents keep up to 20 connections to each of three hooks, of two goroutines each.
	engineSlack    = 4
	goroutineSlack = 320
	heapSlack      = 8 << 20
	heapGrowth     = 1.15
	// The profile is a sample: of memory that is held in small pieces, one in sampleRate bytes is seen. What is held for a controller that
	// is gone would be megabytes after a round.
	sampleRate      = 32 << 10
	engineHeapSlack = 3 << 20
	// The caches of events fill until they have their number of subjects, which a short run does not reach.
	eventsHeap = 16 << 20
	// Numbers in objects, such as versions, get longer.
	bytesGrowth = 1.02
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// tally counts what was done.
type tally struct {
	created, changed, deselected, deleted                     atomic.Int64
	controllersCreated, controllersEdited, controllersDeleted atomic.Int64
}

func (c *tally) String() string {
	return fmt.Sprintf("parents: %d created, %d changed, %d deselected, %d deleted; controllers: %d created, %d edited, %d deleted",
		c.created.Load(), c.changed.Load(), c.deselected.Load(), c.deleted.Load(),
		c.controllersCreated.Load(), c.controllersEdited.Load(), c.controllersDeleted.Load())
}

// TestChurn compares what the server holds after each round, when all parents and controllers are gone.
func TestChurn(t *testing.T) {
	t.Setenv("GODEBUG", fmt.Sprintf("memprofilerate=%d", sampleRate))
	e := fixture.SetUp(t, fixture.Options{Limit: limit})
	test := e.NewTest(t)
	site := newSite(test)
	var samples []*sample
	for round := range rounds {
		began := time.Now()
		site.churn(*duration / rounds)
		churned := time.Since(began)
		site.drain()
		drained := time.Since(began) - churned
		samples = append(samples, takeSample(test))
		t.Logf("round %d churned for %s, drained in %s, and was measured in %s: %s\n%s", round, churned.Round(time.Second),
			drained.Round(time.Second), (time.Since(began) - churned - drained).Round(time.Second), &site.tally, samples[round])
	}
	first, last := samples[0], samples[rounds-1]
	if last.engine > first.engine+engineSlack {
		t.Errorf("the engine has %d goroutines after the last round, %d after the first\n%s", last.engine, first.engine, last.grown(first))
	}
	if last.goroutines > first.goroutines+goroutineSlack {
		t.Errorf("there are %d goroutines after the last round, %d after the first\n%s", last.goroutines, first.goroutines,
			last.grown(first))
	}
	if float64(last.heap.total) > heapGrowth*float64(first.heap.total)+heapSlack {
		t.Errorf("the heap has %s after the last round, %s after the first", last.heap, first.heap)
	}
	if grown := last.heap.owners[engineOwner] - first.heap.owners[engineOwner]; grown > engineHeapSlack {
		t.Errorf("the engine holds %.1f MiB more after the last round than after the first", grown/(1<<20))
	}
	if held := last.heap.owners[eventsOwner]; held > eventsHeap {
		t.Errorf("the correlation of events holds %.1f MiB", held/(1<<20))
	}
	t.Logf("what grew most:\n%sand of the engine:\n%s", last.heap.grown(first.heap, ""), last.heap.grown(first.heap, engineOwner))
	for name, size := range last.sizes {
		limit := first.sizes[name]
		if strings.HasSuffix(name, "_bytes") {
			limit = bytesGrowth * limit
		}
		if size > limit {
			t.Errorf("%s is %v after the last round, %v after the first", name, size, first.sizes[name])
		}
	}
	for name, series := range last.series {
		if series > first.series[name]+seriesSlack {
			t.Errorf("%s has %d series after the last round, %d after the first", name, series, first.series[name])
		}
	}
}

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

// churn has all workers act for a while, or until there were enough changes.
func (s *site) churn(d time.Duration) {
	s.t.T.Helper()
	ctx, end := s.t.T.Context(), time.Now().Add(d)
	var (
		parents, controllers atomic.Int64
		working              sync.WaitGroup
	)
	// goesOn counts a change that is about to be made.
	goesOn := func(made *atomic.Int64, most int64) bool {
		if d > 0 {
			return time.Now().Before(end)
		}
		return made.Add(1) <= most
	}
	for w := range parentWorkers {
		working.Go(func() {
			for goesOn(&parents, roundChanges) {
				s.changeParent(ctx, w+parentWorkers*rand.IntN(parentSlots/parentWorkers))
				pause(ctx, parentPause)
			}
		})
	}
	for w := range controllerWorkers {
		working.Go(func() {
			for goesOn(&controllers, roundControllers) {
				s.changeController(ctx, w+controllerWorkers*rand.IntN(controllerSlots/controllerWorkers))
				pause(ctx, controllerPause)
			}
		})
	}
	working.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// drain deletes all controllers and parents, half of the parents before the controllers, and waits until all are gone.
func (s *site) drain() {
	s.t.T.Helper()
	ctx := s.t.T.Context()
	for slot := range parentSlots / 2 {
		s.deleteParent(ctx, slot)
	}
	for slot := range controllerSlots {
		s.deleteController(ctx, slot)
	}
	for slot := range parentSlots {
		s.deleteParent(ctx, slot)
	}
	s.awaitNone("parents and controllers", func(o metav1.Object) bool { return o.GetLabels()[childLabel] == "" })
	// The garbage collector learns of a new kind of owners only after a while.
	err := s.t.Resource(fixture.ConfigMaps).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: childLabel})
	s.check("deleting the children", err)
	s.awaitNone("children", func(metav1.Object) bool { return true })
}

// awaitNone waits until nothing is left of what counts.
func (s *site) awaitNone(what string, counts func(metav1.Object) bool) {
	s.t.T.Helper()
	var last string
	cluster.Eventually(s.t.T, s.t.Limit, "all "+what+" to be gone", func(ctx context.Context) (bool, string) {
		left, err := s.left(ctx, counts)
		if err != nil {
			return false, fmt.Sprintf("%v, before %s", err, last)
		}
		last = fmt.Sprintf("%d are left: %s", len(left), strings.Join(left, ", "))
		return len(left) == 0, last
	})
}

// left lists the parents, their children and the controllers that are still there, with their finalizers. Residents stay, and
// so do the ConfigMaps that no parent owns.
func (s *site) left(ctx context.Context, counts func(metav1.Object) bool) ([]string, error) {
	api, options := s.t.Versioned.MetacontrollerV1alpha1(), metav1.ListOptions{}
	var left []string
	for _, list := range []func() (runtime.Object, error){
		func() (runtime.Object, error) { return s.t.Resource(fixture.Things).List(ctx, options) },
		func() (runtime.Object, error) { return s.t.Resource(fixture.ConfigMaps).List(ctx, options) },
		func() (runtime.Object, error) { return api.CompositeControllers().List(ctx, options) },
		func() (runtime.Object, error) { return api.DecoratorControllers().List(ctx, options) },
	} {
		found, err := list()
		if err != nil {
			return nil, fmt.Errorf("listing what is left: %w", err)
		}
		err = meta.EachListItem(found, func(each runtime.Object) error {
			o, err := meta.Accessor(each)
			stays := err == nil && (strings.HasPrefix(o.GetName(), "resident-") || o.GetName() == "related" || o.GetName() == "kube-root-ca.crt")
			if err == nil && !stays && counts(o) {
				left = append(left, fmt.Sprintf("%s %v owned by %v", o.GetName(), o.GetFinalizers(), o.GetOwnerReferences()))
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading what is left: %w", err)
		}
	}
	return left, nil
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
	for _, kind := range []fixture.Kind{fixture.Composite, fixture.Decorator} {
		t.Run(fixture.Definition{
			Kind: kind, Name: residentOf(kind), Selector: map[string]string{residentLabel(kind): "yes"}, Sync: s.hooks[kind], Finalize: s.hooks[kind],
			Customize: s.customize, Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
		})
	}
	return s
}

// Residents are controllers that stay while parents come and go: what they remember of a parent must go with it.
func residentOf(kind fixture.Kind) string { return "resident-" + strings.ToLower(string(kind)) }

func residentLabel(kind fixture.Kind) string { return "churn.example.com/" + residentOf(kind) }

// childLabel is on all children.
const childLabel = "churn.example.com/child"

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
		child.SetLabels(map[string]string{childLabel: "yes"})
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
		// Every parent has one composite at most, and several decorators.
		if selected && (kindOf(c) == fixture.Decorator && (slot+c)%2 == 0 || kindOf(c) == fixture.Composite && slot%controllerSlots == c) {
			all[slotLabel(c)] = "yes"
		}
	}
	all[residentLabel(fixture.Decorator)], all[residentLabel(fixture.Composite)] = "no", "no"
	if selected {
		all[residentLabel(fixture.Decorator)] = "yes"
		if kindOf(slot%controllerSlots) == fixture.Decorator {
			all[residentLabel(fixture.Composite)] = "yes"
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
