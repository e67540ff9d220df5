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

package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
)

const (
	// writers write at the same time.
	writers = 8
	// lookInterval is how often all parents and children are listed while a test waits for them.
	lookInterval = 300 * time.Millisecond
	// rootCA is the ConfigMap that Kubernetes puts into every namespace.
	rootCA = "kube-root-ca.crt"
)

// Options say what a fleet is like.
type Options struct {
	// Parents is how many there are, and Children how many each of them wants.
	Parents, Children int
	// Method is how children are updated. Empty: in place.
	Method v1alpha1.ChildUpdateMethod
	// Finalize gives the controller a finalize hook.
	Finalize bool
	// Edit changes the controller. Nil: nothing.
	Edit func(*v1alpha1.CompositeControllerSpec)
}

// Fleet is a controller with its parents. It is for one test goroutine.
type Fleet struct {
	*fixture.Test

	// Hook is the controller's.
	Hook *Hook
	// Controller is the controller.
	Controller *controllers.Controller

	definition fixture.Definition
	options    Options
	// values are what the parents want by their names; parents that were deleted have none.
	values map[string]string
	// made are the UIDs of the children that were seen, by name.
	made map[string]types.UID
}

// New makes a fleet without parents, and waits until its controller runs.
func New(test *fixture.Test, o Options) *Fleet {
	test.T.Helper()
	if o.Method == "" {
		o.Method = v1alpha1.ChildUpdateInPlace
	}
	f := &Fleet{Test: test, Hook: newHook(test.T, o.Children), options: o, values: map[string]string{}, made: map[string]types.UID{}}
	at := &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://" + f.Hook.address + "/sync")}}
	f.definition = fixture.Definition{
		Kind: fixture.Composite, Sync: at, EditComposite: o.Edit,
		Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: o.Method}},
	}
	if o.Finalize {
		f.definition.Finalize = at
	}
	f.Controller = test.Run(f.definition)
	return f
}

// Names are the names of all parents that a fleet has when none is deleted.
func (f *Fleet) Names() []string {
	names := make([]string, f.options.Parents)
	for i := range names {
		names[i] = fmt.Sprintf("p%d", i)
	}
	return names
}

// Create creates the parents that are not there.
func (f *Fleet) Create(value string) {
	f.T.Helper()
	missing := slices.DeleteFunc(f.Names(), func(name string) bool { _, there := f.values[name]; return there })
	f.each("creating", missing, func(ctx context.Context, name string) error {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": value}}}
		o.SetAPIVersion(fixture.Things.GroupVersion().String())
		o.SetKind("Thing")
		o.SetName(name)
		o.SetLabels(map[string]string{fixture.Label: f.Name})
		_, err := f.Resource(fixture.Things).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	for _, name := range missing {
		f.values[name] = value
	}
}

// Change has parents want another value.
func (f *Fleet) Change(value string, names ...string) {
	f.T.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"value":%q}}`, value)
	f.each("changing", names, func(ctx context.Context, name string) error {
		_, err := f.Resource(fixture.Things).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	for _, name := range names {
		f.values[name] = value
	}
}

// Delete deletes parents, without waiting until they are gone.
func (f *Fleet) Delete(names ...string) {
	f.T.Helper()
	f.each("deleting", names, func(ctx context.Context, name string) error {
		return f.Resource(fixture.Things).Delete(ctx, name, metav1.DeleteOptions{})
	})
	for _, name := range names {
		delete(f.values, name)
		for i := range f.options.Children {
			delete(f.made, childName(name, i))
		}
	}
}

// each does something with parents, some of them at the same time. The test fails with the first error.
func (f *Fleet) each(doing string, names []string, do func(context.Context, string) error) {
	f.T.Helper()
	work, errs := make(chan string), make(chan error, len(names))
	var working sync.WaitGroup
	for range writers {
		working.Go(func() {
			for name := range work {
				if err := do(f.T.Context(), name); err != nil {
					errs <- fmt.Errorf("%s %s: %w", doing, name, err)
				}
			}
		})
	}
	for _, name := range names {
		work <- name
	}
	close(work)
	working.Wait()
	close(errs)
	for err := range errs {
		f.T.Fatal(err)
	}
}

// State is what there is of a fleet at one moment.
type State struct {
	// Parents and Children are all objects of their kinds in the namespace, by name.
	Parents, Children map[string]*unstructured.Unstructured
}

// Look lists the parents and their children.
func (f *Fleet) Look(ctx context.Context) (*State, error) {
	s := &State{}
	for resource, into := range map[schema.GroupVersionResource]*map[string]*unstructured.Unstructured{
		fixture.Things: &s.Parents, fixture.ConfigMaps: &s.Children,
	} {
		list, err := f.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", resource.Resource, err)
		}
		*into = make(map[string]*unstructured.Unstructured, len(list.Items))
		for i := range list.Items {
			if name := list.Items[i].GetName(); name != rootCA {
				(*into)[name] = &list.Items[i]
			}
		}
	}
	return s, nil
}

// Remember looks at the children, each of which has to be the same object from now on.
func (f *Fleet) Remember() {
	f.T.Helper()
	state, err := f.Look(f.T.Context())
	if err != nil {
		f.T.Fatal(err)
	}
	f.remember(state)
}

// ForgetDeleted lets the children be created again that are not there now.
func (f *Fleet) ForgetDeleted() {
	f.T.Helper()
	state, err := f.Look(f.T.Context())
	if err != nil {
		f.T.Fatal(err)
	}
	for name := range f.made {
		if state.Children[name] == nil {
			delete(f.made, name)
		}
	}
}

func (f *Fleet) remember(s *State) {
	f.T.Helper()
	for name, child := range s.Children {
		parent := name[:max(0, strings.LastIndexByte(name, '-'))]
		if _, wanted := f.values[parent]; !wanted {
			continue // It goes with its parent, of which there may be another one soon.
		}
		if before, known := f.made[name]; known && before != child.GetUID() {
			f.T.Errorf("the child %s was made again", name)
		}
		f.made[name] = child.GetUID()
	}
}

// Converge waits until the parents, their children and their statuses are as wanted and nothing else is there, and returns how long
// that took.
func (f *Fleet) Converge(after string) time.Duration {
	f.T.Helper()
	began := time.Now()
	var last *State
	cluster.EventuallyEvery(f.T, lookInterval, f.Limit, "the fleet to converge after "+after, func(ctx context.Context) (bool, string) {
		state, err := f.Look(ctx)
		if err != nil {
			return false, err.Error()
		}
		last = state
		wrong := f.Wrong(state)
		return len(wrong) == 0, fmt.Sprintf("%d things are wrong: %v", len(wrong), wrong[:min(len(wrong), 5)])
	})
	f.remember(last)
	for name := range f.made {
		if last.Children[name] == nil {
			f.T.Errorf("the child %s is lost", name)
		}
	}
	return time.Since(began)
}

// Wrong returns in which ways a state is not as wanted.
func (f *Fleet) Wrong(s *State) []string {
	var wrong []string
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	wanted := map[string]bool{}
	for name, value := range f.values {
		parent := s.Parents[name]
		switch {
		case parent == nil:
			complain("%s is not there", name)
			continue
		case parent.GetDeletionTimestamp() != nil:
			complain("%s is being deleted", name)
		case fixture.Value(parent, "status", "value") != value:
			complain("%s has the status %q", name, fixture.Value(parent, "status", "value"))
		case f.options.Finalize != fixture.HasFinalizer(parent, f.Finalizer(f.definition)):
			complain("%s has the finalizers %v", name, parent.GetFinalizers())
		}
		for i := range f.options.Children {
			name := childName(name, i)
			wanted[name] = true
			child := s.Children[name]
			if child == nil {
				complain("%s is not there", name)
				continue
			}
			owner := metav1.GetControllerOf(child)
			if got := fixture.Value(child, "data", "value"); got != value || owner == nil || owner.UID != parent.GetUID() {
				complain("%s has the value %q and the owner %v", name, got, owner)
			}
		}
	}
	for name := range s.Parents {
		if _, there := f.values[name]; !there {
			complain("%s is left", name)
		}
	}
	for name := range s.Children {
		if !wanted[name] {
			complain("the child %s is left", name)
		}
	}
	slices.Sort(wrong)
	return wrong
}

// AwaitCalls waits until the hook was called so often since it began to be counted.
func (f *Fleet) AwaitCalls(since, calls int) {
	f.T.Helper()
	cluster.EventuallyEvery(f.T, time.Millisecond, f.Limit, fmt.Sprintf("%d calls of the hook", calls), func(context.Context) (bool, string) {
		n := f.Hook.Calls() - since
		return n >= calls, fmt.Sprintf("%d calls", n)
	})
}

// AwaitState waits until a state is as wanted.
func (f *Fleet) AwaitState(what string, want func(*State) (bool, string)) {
	f.T.Helper()
	cluster.EventuallyEvery(f.T, lookInterval, f.Limit, what, func(ctx context.Context) (bool, string) {
		state, err := f.Look(ctx)
		if err != nil {
			return false, err.Error()
		}
		return want(state)
	})
}

// listenLimit is how long a hook that returns may take to get its port back.
const listenLimit = 30 * time.Second

// Hook is the sync and finalize hook of a fleet. Its methods, but for Up and Down, may be used concurrently.
type Hook struct {
	t        testing.TB
	address  string
	children int
	server   *http.Server
	served   sync.WaitGroup

	calls          atomic.Int64
	inFlight, most atomic.Int64
	none           atomic.Bool

	mu   sync.Mutex
	seen map[string]int
}

// newHook returns a hook that is up. It ends with the test.
func newHook(t testing.TB, children int) *Hook {
	t.Helper()
	h := &Hook{t: t, address: freeport.Address(freeport.Find(t)), children: children, seen: map[string]int{}}
	h.Up()
	t.Cleanup(h.Down)
	return h
}

func (h *Hook) serve(listener net.Listener) {
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	h.served.Go(func() {
		if err := h.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			h.t.Errorf("serving the hook: %v", err)
		}
	})
}

// Down ends the hook: connections are closed, and new ones refused.
func (h *Hook) Down() {
	_ = h.server.Close()
	h.served.Wait()
}

// Up has the hook respond again.
func (h *Hook) Up() {
	h.t.Helper()
	var listener net.Listener
	err := wait.PollUntilContextTimeout(h.t.Context(), 10*time.Millisecond, listenLimit, true, func(ctx context.Context) (bool, error) {
		var err error
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", h.address)
		return err == nil, nil
	})
	if err != nil {
		h.t.Fatalf("getting the port of the hook back: %v", err)
	}
	h.serve(listener)
}

// RespondNone has the hook respond that no parent wants children, or again what they want.
func (h *Hook) RespondNone(none bool) { h.none.Store(none) }

// Calls returns how often the hook was called.
func (h *Hook) Calls() int { return int(h.calls.Load()) }

// Most returns how many calls there were at once at most.
func (h *Hook) Most() int { return int(h.most.Load()) }

// Forget begins to count anew, but for Calls.
func (h *Hook) Forget() {
	h.most.Store(0)
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.seen)
}

// Seen returns how often the hook was called for each parent since Forget, by name.
func (h *Hook) Seen() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.seen)
}

// ServeHTTP serves one call.
func (h *Hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.inFlight.Add(-1)
	for now := h.inFlight.Add(1); ; {
		most := h.most.Load()
		if now <= most || h.most.CompareAndSwap(most, now) {
			break
		}
	}
	hooktest.Composite(h.respond).ServeHTTP(w, r)
}

func (h *Hook) respond(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
	h.calls.Add(1)
	h.mu.Lock()
	h.seen[q.Parent.GetName()]++
	h.mu.Unlock()
	if q.Finalizing {
		left := 0
		for _, objects := range q.Children {
			left += len(objects)
		}
		return &hook.CompositeResponse{Finalized: left == 0}, nil
	}
	value := fixture.Value(q.Parent, "spec", "value")
	response := &hook.CompositeResponse{Status: map[string]any{"value": value}}
	if h.none.Load() {
		return response, nil
	}
	for i := range h.children {
		response.Children = append(response.Children, fixture.ConfigMap(childName(q.Parent.GetName(), i), map[string]any{"value": value}))
	}
	return response, nil
}

func childName(parent string, i int) string { return fmt.Sprintf("%s-%d", parent, i) }
