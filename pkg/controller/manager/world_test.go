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

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// world is the cluster and the store that a supervisor sees: one DecoratorController, and the objects of its parents'
// resources. It runs within a synctest bubble. A running instance puts its finalizer on all objects of its parents.
type world struct {
	t *testing.T

	// delivery keeps the changes of the object in their order.
	delivery sync.Mutex

	mu         sync.Mutex
	controller *v1alpha1.DecoratorController
	gone       bool
	supervisor *Supervisor
	changed    func()
	// objects says for each resource and name whether the object carries the finalizer.
	objects map[string]map[string]bool
	// running are the resources that the running instance finalizes.
	running  []string
	instance *instance
	log      []string
	warnings []string
	// What the tests break: releases and lists by resource or resource/name, publications, instances.
	broken map[string]error
	// deleting are the objects that are being deleted.
	deleting map[string]bool
	refused  error
	panics   map[string]bool
	blocked  map[string]chan struct{}
	missing  map[string]bool // resources that are not served
	unknown  bool            // the cluster does not say what is served
	asked    chan struct{}   // until it is closed, the cluster does not respond to what is served; nil: it does
	problem  error           // what an instance that is built from now on cannot watch
	invalid  error           // that of building, from now on
	version  int
	// statuses counts publications.
	statuses int
	// pruning says that the API server keeps no status.
	pruning bool
}

func newWorld(t *testing.T, resources ...string) *world {
	w := &world{
		t: t, objects: map[string]map[string]bool{}, broken: map[string]error{}, panics: map[string]bool{},
		blocked: map[string]chan struct{}{}, missing: map[string]bool{}, version: 1,
		controller: &v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: "d", UID: "u", Generation: 1, ResourceVersion: "1"}},
	}
	w.controller.Spec.Hooks = &v1alpha1.DecoratorControllerHooks{Sync: &v1alpha1.Hook{}, Finalize: &v1alpha1.Hook{}}
	w.controller.Spec.Resources = rules(resources...)
	for _, r := range []string{"services", "configmaps", "secrets"} {
		w.objects[r] = map[string]bool{"ns/a": false, "ns/b": false}
	}
	return w
}

// finalizing returns a world with a controller that finalizes resources.
func finalizing(resources ...string) func(*testing.T) *world {
	return func(t *testing.T) *world {
		t.Helper()
		return newWorld(t, resources...)
	}
}

// play runs a test in a bubble of its own, with a world in which the supervisor runs.
func play(t *testing.T, build func(*testing.T) *world, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := build(t)
		defer w.run()()
		test(t, w)
	})
}

// breaks has what a name stands for fail with an error, and work again if it is nil.
func (w *world) breaks(name string, err error) {
	w.locked(func() { w.broken[name] = err })
}

// rules are of resources of the core group, or group/version/resource.
func rules(resources ...string) []v1alpha1.DecoratorControllerResourceRule {
	var list []v1alpha1.DecoratorControllerResourceRule
	for _, r := range resources {
		version := "v1"
		if i := strings.LastIndex(r, "/"); i >= 0 {
			version, r = r[:i], r[i+1:]
		}
		list = append(list, v1alpha1.DecoratorControllerResourceRule{ResourceRule: v1alpha1.ResourceRule{APIVersion: version, Resource: r}})
	}
	return list
}

// run starts a supervisor. It returns when nothing happens any more, with a function that ends it.
func (w *world) run() (stop func()) {
	w.t.Helper()
	s := newSupervisor(supervisorConfig{Builder: w, Recorder: w, Objects: w, Finalized: w.Finalized, Changes: w.subscribe}, w.definition())
	w.mu.Lock()
	w.supervisor = s
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	synctest.Wait()
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
}

func (w *world) definition() reconciler.Definition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return reconciler.OfDecorator(w.controller.DeepCopy())
}

// write changes the stored object, and tells the supervisor as an informer does. A change of spec is a new generation.
func (w *world) write(change func(*v1alpha1.DecoratorController)) {
	w.delivery.Lock()
	defer w.delivery.Unlock()
	w.mu.Lock()
	before := fmt.Sprint(w.controller.Spec)
	change(w.controller)
	if fmt.Sprint(w.controller.Spec) != before {
		w.controller.Generation++
	}
	w.version++
	w.controller.ResourceVersion = strconv.Itoa(w.version)
	if w.controller.DeletionTimestamp != nil && len(w.controller.Finalizers) == 0 {
		w.gone = true
	}
	s := w.supervisor
	w.mu.Unlock()
	s.Redefine(w.definition())
}

func (w *world) declare(resources ...string) {
	w.write(func(c *v1alpha1.DecoratorController) { c.Spec.Resources = rules(resources...) })
	synctest.Wait()
}

func (w *world) delete() {
	w.write(func(c *v1alpha1.DecoratorController) { c.DeletionTimestamp = new(metav1.Now()) })
	synctest.Wait()
}

func (w *world) serve(change func()) {
	w.mu.Lock()
	change()
	changed := w.changed
	w.mu.Unlock()
	changed()
	synctest.Wait()
}

// after lets time pass.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// block lets releases of a resource take until unblock. Both are called with the lock held.
func (w *world) block(resource string) {
	w.unblock(resource)
	w.blocked[resource] = make(chan struct{})
}

func (w *world) unblock(resource string) {
	if blocked, ok := w.blocked[resource]; ok {
		close(blocked)
		delete(w.blocked, resource)
	}
}

func (w *world) subscribe(changed func()) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = changed
	return func() {}
}

func (w *world) notef(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// took returns what was logged since the last call, of lines with a prefix.
func (w *world) took(prefix string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, line := range w.log {
		if strings.HasPrefix(line, prefix) {
			list = append(list, line)
		}
	}
	w.log = nil
	slices.Sort(list) // Several objects are released at the same time.
	return list
}

func (w *world) Warning(_ *corev1.ObjectReference, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnings = append(w.warnings, reason+": "+message)
}

func (w *world) WarningOfParent(subject, object *corev1.ObjectReference, reason, message string) {
	if object.Kind != v1alpha1.KindDecorator {
		w.t.Errorf("the controller object is a %s", object.Kind)
	}
	w.Warning(subject, reason, message)
}

func (w *world) Lifecycle(*corev1.ObjectReference, string, string) {}

func (w *world) PublishStatus(_ context.Context, d reconciler.Definition, _ string, status *v1alpha1.ControllerStatus) (bool, error) {
	w.mu.Lock()
	err, pruning := w.refused, w.pruning
	if w.gone || d.Meta.UID != w.controller.UID {
		err = apierrors.NewNotFound(schema.GroupResource{}, "d")
	}
	w.mu.Unlock()
	if err != nil {
		return false, err
	}
	if pruning {
		w.mu.Lock()
		w.statuses++
		w.mu.Unlock()
		return false, nil // The object does not change.
	}
	w.write(func(c *v1alpha1.DecoratorController) {
		w.statuses++
		c.Status.ControllerStatus = *status.DeepCopy()
	})
	return true, nil
}

func (w *world) SetFinalizers(_ context.Context, d reconciler.Definition, finalizers []string) error {
	w.mu.Lock()
	stale, gone := d.Meta.ResourceVersion != w.controller.ResourceVersion, w.gone
	w.notef("finalizers %v", finalizers)
	w.mu.Unlock()
	if gone {
		return apierrors.NewNotFound(schema.GroupResource{}, "d")
	}
	if stale {
		return apierrors.NewConflict(schema.GroupResource{}, "d", errors.New("stale"))
	}
	w.write(func(c *v1alpha1.DecoratorController) { c.Finalizers = finalizers })
	return nil
}

func (w *world) Finalized(_ context.Context, r schema.GroupResource, d reconciler.Definition) ([]FinalizedParent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notef("list %s", r.Resource)
	if d.Finalizer != "metacontroller.io/decoratorcontroller-d" {
		w.t.Errorf("listed the objects with the finalizer %q", d.Finalizer)
	}
	if w.panics["list"] {
		panic("list")
	}
	if err := w.broken[r.Resource]; err != nil {
		return nil, err
	}
	var list []FinalizedParent
	for name, carries := range w.objects[r.Resource] {
		if carries {
			namespace, o, _ := strings.Cut(name, "/")
			var finalizing *corev1.ObjectReference
			if w.deleting[r.Resource+"/"+name] {
				finalizing = &corev1.ObjectReference{Namespace: namespace, Name: o}
			}
			list = append(list, FinalizedParent{
				Key: parent.NewKey(r, namespace, o), UID: types.UID(r.Resource + "/" + name), Finalizing: finalizing,
				Release: func(ctx context.Context) error { return w.release(ctx, r.Resource, name) },
			})
		}
	}
	slices.SortFunc(list, func(a, b FinalizedParent) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return list, nil
}

func (w *world) release(ctx context.Context, resource, name string) error {
	w.mu.Lock()
	w.notef("release %s/%s", resource, name)
	if slices.Contains(w.running, resource) {
		w.t.Errorf("released %s/%s, which the running instance finalizes", resource, name)
	}
	blocked, err, panics := w.blocked[resource], w.broken[resource+"/"+name], w.panics["release"]
	w.mu.Unlock()
	if panics {
		panic("release")
	}
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
			<-time.After(time.Second) // The request is under way, and may succeed.
		}
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.running, resource) {
		w.t.Errorf("released %s/%s after an instance began to finalize it", resource, name)
	}
	w.objects[resource][name] = false
	return nil
}

// Build implements Builder. An instance that finalizes needs the record and the hold in the stored object.
func (w *world) Build(_ context.Context, d reconciler.Definition) (Instance, []string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := &instance{world: w, started: make(chan struct{}), activity: make(chan struct{}, 1), problem: w.problem, state: reconciler.State{Paused: d.Paused}}
	names := []string{}
	for _, rule := range d.Parents {
		names = append(names, rule.Resource)
		switch {
		case w.missing[rule.Resource] && len(d.Parents) == 1:
			return nil, nil, &discovery.NotFoundError{APIVersion: rule.APIVersion, Resource: rule.Resource}
		case w.missing[rule.Resource]:
			i.missing = append(i.missing, rule.Resource)
		}
	}
	if w.invalid != nil {
		return nil, nil, w.invalid
	}
	w.notef("build %s", strings.Join(names, ","))
	if w.panics["build"] {
		panic("build")
	}
	if d.Finalizes() {
		i.finalizes = names
		for _, list := range [][]v1alpha1.FinalizedResource{w.controller.Status.FinalizedResources, d.Status.FinalizedResources} {
			for _, name := range names {
				if !slices.ContainsFunc(list, func(f v1alpha1.FinalizedResource) bool { return f.Resource == name }) {
					w.t.Errorf("an instance that finalizes %s is built while %v is recorded", name, list)
				}
			}
		}
		if !slices.Contains(w.controller.Finalizers, v1alpha1.FinalizerParents) {
			w.t.Error("an instance that finalizes is built while nothing keeps the controller object")
		}
	}
	w.instance = i
	return i, w.fingerprint(d), nil
}

func (w *world) Fingerprint(ctx context.Context, d reconciler.Definition) []string {
	w.mu.Lock()
	asked := w.asked
	w.mu.Unlock()
	if asked != nil {
		select {
		case <-asked:
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fingerprint(d)
}

func (w *world) fingerprint(d reconciler.Definition) []string {
	texts := make([]string, len(d.Parents))
	for i, rule := range d.Parents {
		if !w.unknown {
			texts[i] = fmt.Sprint("missing: ", w.missing[rule.Resource])
		}
	}
	return texts
}

// carries returns the objects that carry the finalizer.
func (w *world) carries() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []string{}
	for resource, objects := range w.objects {
		for name, carries := range objects {
			if carries {
				list = append(list, resource+"/"+name)
			}
		}
	}
	slices.Sort(list)
	return list
}

func (w *world) recorded() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []string{}
	for _, f := range w.controller.Status.FinalizedResources {
		list = append(list, schema.GroupResource{Group: f.Group, Resource: f.Resource}.String())
	}
	return list
}

func (w *world) held() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.controller.Finalizers, v1alpha1.FinalizerParents)
}

// shows returns status, reason and message of a stored condition.
func (w *world) shows(condition string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := meta.FindStatusCondition(w.controller.Status.Conditions, condition)
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

// wantShows wants a condition as it is within two seconds.
func (w *world) wantShows(condition string, parts ...string) {
	w.t.Helper()
	lacks := func(part string) bool { return !strings.Contains(w.shows(condition), part) }
	// A status is published two seconds after the one before, and by rounding a moment later.
	for n := 0; n < 50 && slices.ContainsFunc(parts, lacks); n++ {
		after(100 * time.Millisecond)
	}
	got := w.shows(condition)
	for _, part := range parts {
		if !strings.Contains(got, part) {
			w.t.Errorf("condition %s is %q, want %q in it", condition, got, part)
		}
	}
}

// published returns the number of publications so far.
func (w *world) published() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.statuses
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// instance finalizes all objects of its resources.
type instance struct {
	world     *world
	started   chan struct{}
	activity  chan struct{}
	reads     atomic.Int64
	finalizes []string
	missing   []string
	redefined int
	problem   error
	counters  v1alpha1.ControllerCounters
	state     reconciler.State
	hooks     []v1alpha1.HookStatus
	errors    []v1alpha1.ParentError
}

func (i *instance) Run(ctx context.Context) {
	w := i.world
	w.mu.Lock()
	if len(w.running) > 0 {
		w.t.Errorf("an instance runs while another one finalizes %v", w.running)
	}
	w.running = i.finalizes
	for _, r := range i.finalizes {
		for name := range w.objects[r] {
			w.objects[r][name] = true
		}
	}
	panics, ends := w.panics["run"], w.panics["end"]
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running = nil
	}()
	close(i.started)
	if panics {
		panic("run")
	}
	if !ends {
		<-ctx.Done()
	}
}

func (i *instance) Started() <-chan struct{} { return i.started }

func (i *instance) Activity() <-chan struct{} { return i.activity }

func (i *instance) Health() reconciler.State {
	i.reads.Add(1)
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	if i.world.panics["problem"] {
		panic("problem")
	}
	state := i.state
	select {
	case <-i.started:
		state.Started = true
	default:
	}
	state.Missing, state.Problem = i.missing, i.problem
	return state
}

func (i *instance) Redefine(_ context.Context, d reconciler.Definition) error {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	i.redefined++
	i.state.Paused = d.Paused
	return nil
}

func (i *instance) Counters() *v1alpha1.ControllerCounters {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	if i.world.panics["counters"] {
		panic("counters")
	}
	return i.counters.DeepCopy()
}

func (i *instance) Hooks() []v1alpha1.HookStatus {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	return slices.Clone(i.hooks)
}

func (i *instance) LastErrors() []v1alpha1.ParentError {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	return slices.Clone(i.errors)
}

// is changes how the running instance is doing.
func (w *world) is(change func(*reconciler.State)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.instance.state)
	w.active()
}

func (w *world) counted(change func(*v1alpha1.ControllerCounters)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.instance.counters)
	w.active()
}

// active says that something happened, with the lock held.
func (w *world) active() {
	select {
	case w.instance.activity <- struct{}{}:
	default:
	}
}
