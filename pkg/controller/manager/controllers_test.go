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
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// store holds one CompositeController, and tells the managers of several servers of its changes. It runs within a synctest
// bubble.
type store struct {
	t       *testing.T
	servers []*server

	mu      sync.Mutex
	object  *v1alpha1.CompositeController
	version int
	refused error
	writes  []string
}

// server is a manager with instances that do nothing.
type server struct {
	*Manager
	*store

	name string
	stop context.CancelFunc

	mu        sync.Mutex
	instances []types.UID
	// causes are those of the ends of instances.
	causes []error
}

func newStore(t *testing.T) *store {
	s := &store{t: t}
	s.create("u1", map[string]string{"site": "a"})
	return s
}

func (s *store) create(uid types.UID, labels map[string]string) {
	s.version++
	s.object = &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{
		Name: "c", UID: uid, Generation: 1, ResourceVersion: strconv.Itoa(s.version), Labels: labels,
	}}
}

// serve starts a server with a target label selector.
func (s *store) serve(name, selector string) *server {
	parsed, err := labels.Parse(selector)
	if err != nil {
		s.t.Fatal(err)
	}
	v := &server{store: s, name: name}
	v.Manager = &Manager{selector: parsed, controllers: v.supervised()}
	excluder := &excluder{selector: selector, await: v.controllers.await, writing: make(chan struct{}, 1)}
	excluder.publish = func(_ context.Context, d reconciler.Definition, version string, status *v1alpha1.ControllerStatus) (bool, error) {
		return true, s.publish(name+" excludes", d, version, status)
	}
	v.exclusions = newControllers(excluder.start)
	ctx, stop := context.WithCancel(s.t.Context())
	v.stop = stop
	s.mu.Lock()
	s.servers = append(s.servers, v)
	object := s.object.DeepCopy()
	s.mu.Unlock()
	v.put(ctx, reconciler.OfComposite(object))
	synctest.Wait()
	return v
}

// supervised are controllers with supervisors.
func (v *server) supervised() *controllers {
	config := supervisorConfig{Builder: v, Recorder: v, Objects: v, Finalized: v.Finalized, Changes: func(func()) func() { return func() {} }}
	return newControllers(func(d reconciler.Definition) runner { return newSupervisor(config, d) })
}

func (v *server) end() {
	v.stop()
	for _, some := range []*controllers{v.controllers, v.exclusions} {
		some.mu.Lock()
		for _, c := range some.all {
			c.end()
		}
		some.mu.Unlock()
		some.wait()
	}
}

// change changes the object, and tells all servers.
func (s *store) change(change func(*v1alpha1.CompositeController)) {
	s.mu.Lock()
	s.version++
	s.object = s.object.DeepCopy()
	s.object.ResourceVersion = strconv.Itoa(s.version)
	change(s.object)
	object, servers := s.object, slices.Clone(s.servers)
	s.mu.Unlock()
	for _, v := range servers {
		v.put(s.t.Context(), reconciler.OfComposite(object))
	}
}

func (s *store) label(site string) {
	s.change(func(c *v1alpha1.CompositeController) { c.Labels = map[string]string{"site": site} })
	after(time.Minute)
}

func (s *store) publish(who string, d reconciler.Definition, version string, status *v1alpha1.ControllerStatus) error {
	s.mu.Lock()
	stale := d.Meta.UID != s.object.UID || version != "" && version != s.object.ResourceVersion
	refused := s.refused
	if refused == nil && !stale {
		s.writes = append(s.writes, who)
	}
	s.mu.Unlock()
	switch {
	case refused != nil:
		return refused
	case stale:
		return apierrors.NewConflict(schema.GroupResource{}, "c", errors.New("stale"))
	}
	s.change(func(c *v1alpha1.CompositeController) { c.Status.ControllerStatus = *status.DeepCopy() })
	return nil
}

func (s *store) shows(condition string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := meta.FindStatusCondition(s.object.Status.Conditions, condition)
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

func (s *store) wantReady(part string) {
	s.t.Helper()
	s.wantCondition(v1alpha1.ConditionReady, part)
}

// wantCondition wants a condition as it is within two seconds.
func (s *store) wantCondition(condition, part string) {
	s.t.Helper()
	for n := 0; n < 20 && !strings.Contains(s.shows(condition), part); n++ {
		after(100 * time.Millisecond)
	}
	if got := s.shows(condition); !strings.Contains(got, part) {
		s.t.Errorf("%s is %q, want %q in it", condition, got, part)
	}
}

// wrote returns how often a server published since the last call, as excluding it or as running it.
func (s *store) wrote(who string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, w := range s.writes {
		if w == who {
			n++
		}
	}
	s.writes = nil
	return n
}

func (v *server) runs() []types.UID {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.instances)
}

func (v *server) Build(_ context.Context, d reconciler.Definition) (Instance, []string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()

	return &idle{server: v, uid: d.Meta.UID}, nil, nil
}

func (*server) Fingerprint(context.Context, reconciler.Definition) []string { return nil }

func (*server) Warning(*corev1.ObjectReference, string, string) {}

func (*server) WarningOfParent(_, _ *corev1.ObjectReference, _, _ string) {}

func (*server) Lifecycle(*corev1.ObjectReference, string, string) {}

func (v *server) PublishStatus(_ context.Context, d reconciler.Definition, version string, status *v1alpha1.ControllerStatus) (bool, error) {
	return true, v.publish(v.name+" runs", d, version, status)
}

func (*server) SetFinalizers(context.Context, reconciler.Definition, []string) error { return nil }

func (*server) Finalized(context.Context, schema.GroupResource, reconciler.Definition) ([]FinalizedParent, error) {
	return nil, nil
}

// idle is an instance that does nothing, and takes its time to end.
type idle struct {
	server *server
	uid    types.UID
}

func (i *idle) Run(ctx context.Context) {
	v := i.server
	v.mu.Lock()
	v.instances = append(v.instances, i.uid)
	if len(v.instances) > 1 {
		v.t.Errorf("instances of %v run at the same time", v.instances)
	}
	v.mu.Unlock()
	<-ctx.Done()
	<-time.After(5 * time.Second)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.instances = nil
	v.causes = append(v.causes, context.Cause(ctx))
}

func (*idle) Started() <-chan struct{} {
	started := make(chan struct{})
	close(started)
	return started
}

func (*idle) Activity() <-chan struct{} { return nil }

func (*idle) Health() reconciler.State { return reconciler.State{Started: true} }

func (*idle) Redefine(context.Context, reconciler.Definition) error { return nil }

func (*idle) Counters() *v1alpha1.ControllerCounters { return &v1alpha1.ControllerCounters{} }

func (*idle) Hooks() []v1alpha1.HookStatus { return nil }

func (*idle) LastErrors() []v1alpha1.ParentError { return nil }

func TestAControllerRunsWhileItIsSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		v := s.serve("a", "site=a")
		defer v.end()
		s.wantReady("True Running")
		s.label("b")
		s.wantReady("False NotSelected The labels of this object do not match --target-label-selector=site=a")
		if got := v.runs(); len(got) > 0 {
			t.Errorf("%v runs", got)
		}
		s.wantCondition(v1alpha1.ConditionStalled, "True NotSelected The labels of this object do not match")
		s.wantCondition(v1alpha1.ConditionEstablished, "False NotSelected")
		s.wantCondition(v1alpha1.ConditionHooksHealthy, "Unknown NotRunning")
		s.wantCondition(v1alpha1.ConditionProgressing, "False NotRunning")
		s.wantCondition(v1alpha1.ConditionResourcesServed, "Unknown NotRunning")
		if n := s.wrote("a excludes"); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
		s.label("c")
		s.label("a")
		s.wantReady("True Running")
		s.wantCondition(v1alpha1.ConditionStalled, "none")
		v.remove(reconciler.OfComposite(s.object))
		after(10 * time.Second)
		if got := v.runs(); len(got) > 0 || len(v.controllers.all) > 0 || len(v.exclusions.all) > 0 {
			t.Errorf("of an object that is gone there is left: %v %v %v", got, v.controllers.all, v.exclusions.all)
		}
	})
}

func TestAnInstanceKnowsWhetherAnotherOneMayFollow(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		happen func(s *store, v *server)
		want   error
	}{
		"Removed":  {"The object may be created again at once.", func(s *store, v *server) { v.remove(reconciler.OfComposite(s.object)) }, reconciler.ErrReplaced},
		"Another":  {"An object of that name follows.", func(s *store, _ *server) { s.change(func(c *v1alpha1.CompositeController) { c.UID = "u2" }) }, reconciler.ErrReplaced},
		"Excluded": {"Another server follows.", func(s *store, _ *server) { s.label("b") }, reconciler.ErrReplaced},
		"Shutdown": {"Nobody follows in this process.", func(_ *store, v *server) { v.stop() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t)
				v := s.serve("a", "site=a")
				s.wantReady("True Running")
				tc.happen(s, v)
				after(10 * time.Second)
				v.mu.Lock()
				causes := slices.Clone(v.causes)
				v.mu.Unlock()
				v.end()
				if len(causes) != 1 || !errors.Is(causes[0], tc.want) {
					t.Errorf("ended because of %v, want %v: %s", causes, tc.want, tc.reason)
				}
			})
		})
	}
}

func TestServersThatSelectDifferentObjectsDoNotWriteAgainstEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		a, b := s.serve("a", "site=a"), s.serve("b", "site=b")
		defer a.end()
		defer b.end()
		after(time.Hour)
		s.wantReady("True Running")
		s.change(func(c *v1alpha1.CompositeController) { c.Generation++ })
		after(time.Hour)
		if n := s.wrote("b excludes"); n != 1 {
			t.Errorf("the server that does not run the controller wrote %d times, want once", n)
		}
		s.label("b")
		s.wantReady("True Running")
		if len(a.runs()) != 0 || len(b.runs()) != 1 {
			t.Errorf("a runs %v, b runs %v", a.runs(), b.runs())
		}
		after(time.Hour)
		if n := s.wrote("a excludes"); n != 1 {
			t.Errorf("the server that does not run the controller wrote %d times, want once", n)
		}
	})
}

func TestAnExclusionIsAboutTheLatestGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		defer s.serve("b", "site=b").end()
		s.wantReady("False NotSelected")
		s.change(func(c *v1alpha1.CompositeController) { c.Generation = 2 })
		after(time.Second)
		s.wantReady("False NotSelected")
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.object.Status.ObservedGeneration; n != 2 {
			t.Errorf("the status is about generation %d", n)
		}
		for _, c := range s.object.Status.Conditions {
			if c.ObservedGeneration != 2 {
				t.Errorf("the condition %s is about generation %d", c.Type, c.ObservedGeneration)
			}
		}
	})
}

func TestAnExclusionIsWrittenLaterWhenItCannotBeNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		s.refused = errors.New("the store is full")
		v := s.serve("b", "site=b")
		defer v.end()
		s.wantReady("none")
		s.mu.Lock()
		s.refused = nil
		s.mu.Unlock()
		after(exclusionRetry)
		s.wantReady("False NotSelected")
	})
}

func TestAnExclusionKeepsTheRestOfTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		s.object.Status.FinalizedResources = []v1alpha1.FinalizedResource{{Resource: "services"}}
		s.object.Status.Counters = &v1alpha1.ControllerCounters{Parents: 3}
		defer s.serve("b", "site=b").end()
		s.wantReady("this object cannot be deleted")
		if got := s.object.Status; len(got.FinalizedResources) != 1 || got.Counters != nil {
			t.Errorf("the status is %+v", got)
		}
	})
}

// An informer that lost its watch shows an object that was deleted and created again as an update.
func TestAnotherObjectOfTheNameGetsASupervisorOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		v := s.serve("a", "site=a")
		defer v.end()
		s.mu.Lock()
		s.create("u2", map[string]string{"site": "a"})
		s.mu.Unlock()
		s.change(func(*v1alpha1.CompositeController) {})
		after(10 * time.Second)
		if got := v.runs(); len(got) != 1 || got[0] != "u2" {
			t.Errorf("%v runs, want u2", got)
		}
		s.wantReady("True Running")
	})
}

// TestControllerObjectsThatComeAfterTheEnd has an informer deliver an object when the manager waits for what runs: nothing may be added to
// that any more.
func TestControllerObjectsThatComeAfterTheEnd(t *testing.T) {
	s := newStore(t)
	c := (&server{store: s, name: "server"}).supervised()
	ctx, end := context.WithCancel(t.Context())
	end()
	c.wait()
	c.put(ctx, reconciler.OfComposite(s.object))
	if len(c.all) > 0 {
		t.Errorf("%d controllers run after the end", len(c.all))
	}
}
