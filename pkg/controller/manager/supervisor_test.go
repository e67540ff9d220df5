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
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/fake"
)

func TestAControllerIsBuiltAgainOnlyWhenItsSpecOrWhatIsServedChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*world)
		built     []string
		redefined int
	}{
		"spec": {func(w *world) { w.declare("secrets") }, []string{"build secrets"}, 0},
		"labels": {func(w *world) {
			w.write(func(c *v1alpha1.DecoratorController) { c.Labels = map[string]string{"a": "b"} })
		}, nil, 1},
		"annotations": {func(w *world) {
			w.write(func(c *v1alpha1.DecoratorController) { c.Annotations = map[string]string{"a": "b"} })
		}, nil, 1},
		"pause": {func(w *world) { w.pause(true); w.pause(false) }, nil, 2},
		"deletion guard": {func(w *world) {
			w.write(func(c *v1alpha1.DecoratorController) {
				c.Spec.DeletionGuard = &v1alpha1.DeletionGuard{MaxDeletions: new(intstr.FromInt32(1))}
			})
		}, nil, 1},
		"status":  {func(w *world) { w.counted(func(n *v1alpha1.ControllerCounters) { n.Syncs++ }); after(time.Minute) }, nil, 0},
		"nothing": {func(w *world) { w.write(func(*v1alpha1.DecoratorController) {}) }, nil, 0},
		"a resource is not served any more": {
			func(w *world) { w.serve(func() { w.missing["services"] = true }) }, []string{"build services,configmaps"}, 0,
		},
		"the cluster does not say": {func(w *world) { w.serve(func() { w.unknown = true }) }, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, finalizing("services", "configmaps"), func(t *testing.T, w *world) {
				first := w.instance
				w.took("")
				tc.change(w)
				synctest.Wait()
				equal(t, "built", w.took("build"), tc.built)
				w.wantShows(v1alpha1.ConditionReady, "True Running")
				if first.redefined != tc.redefined {
					t.Errorf("the instance was redefined %d times, want %d", first.redefined, tc.redefined)
				}
			})
		})
	}
}

// TestTheBrakesDoNotWaitForTheCluster pauses a controller while the cluster does not respond to what it serves.
func TestTheBrakesDoNotWaitForTheCluster(t *testing.T) {
	play(t, finalizing("services"), func(t *testing.T, w *world) {
		w.mu.Lock()
		w.asked = make(chan struct{})
		w.mu.Unlock()
		w.pause(true)
		synctest.Wait()
		w.mu.Lock()
		if !w.instance.state.Paused {
			t.Error("the controller is not paused")
		}
		close(w.asked)
		w.asked = nil
		w.mu.Unlock()
	})
}

func TestResourcesThatAreNotServed(t *testing.T) {
	play(t, finalizing("services", "configmaps"), func(_ *testing.T, w *world) {
		w.wantShows(v1alpha1.ConditionResourcesServed, "True Served")
		w.serve(func() { w.missing["services"] = true })
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		w.wantShows(v1alpha1.ConditionResourcesServed, "False ResourceNotFound", "services", "Install")
		w.serve(func() { w.missing["services"] = false })
		w.wantShows(v1alpha1.ConditionResourcesServed, "True Served")

		w.declare("services")
		w.serve(func() { w.missing["services"] = true })
		w.wantShows(v1alpha1.ConditionReady, "False ResourceNotFound", "services")
		w.wantShows(v1alpha1.ConditionResourcesServed, "False ResourceNotFound", "services")
		w.serve(func() { w.missing["services"] = false }) // Within no time: the back-off ends.
		w.wantShows(v1alpha1.ConditionReady, "True Running")

		w.serve(func() { w.missing["services"] = true })
		w.wantShows(v1alpha1.ConditionResourcesServed, "False ResourceNotFound", "services")
		w.mu.Lock()
		w.invalid = &reconciler.InvalidError{Reason: "two rules for one kind"}
		w.mu.Unlock()
		w.declare("configmaps")
		w.wantShows(v1alpha1.ConditionReady, "False InvalidDefinition", "two rules")
		w.wantShows(v1alpha1.ConditionResourcesServed, "Unknown NotRunning")
	})
}

func TestAnErrorThatPassesIsRetriedSoonHoweverLongAResourceWasMissing(t *testing.T) {
	for name, refusal := range map[string]error{
		"Conflict":    apierrors.NewConflict(schema.GroupResource{}, "d", errors.New("changed")),
		"Unavailable": apierrors.NewServiceUnavailable("not now"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "services")
				w.missing["services"] = true
				defer w.run()()
				after(time.Hour)
				refuse := func(err error) {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.refused = err
				}
				refuse(refusal)
				w.declare("services", "secrets")
				after(2 * time.Second)
				refuse(nil)
				after(10 * time.Second)
				w.mu.Lock()
				defer w.mu.Unlock()
				ready := meta.FindStatusCondition(w.controller.Status.Conditions, v1alpha1.ConditionReady)
				if ready == nil || ready.ObservedGeneration != w.controller.Generation || ready.Reason != v1alpha1.ReasonRunning {
					t.Errorf("it is %+v in generation %d", ready, w.controller.Generation)
				}
			})
		})
	}
}

func TestAResourceOfWhichTheClusterSaidNothingIsTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "services", "configmaps")
		w.unknown = true
		defer w.run()()
		w.took("")
		w.serve(func() { w.unknown = false })
		equal(t, "built", w.took("build"), []string{"build services,configmaps"})
	})
}

func TestPanicsAreShownAndTriedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		panics            string
		condition, reason string
		// attempts are at most made within an hour.
		prefix   string
		attempts int
	}{
		"building":             {"build", v1alpha1.ConditionReady, "False InternalError", "build", 25},
		"running":              {"run", v1alpha1.ConditionReady, "False InternalError", "build", 25},
		"running without end":  {"end", v1alpha1.ConditionReady, "False InternalError", "build", 25},
		"looking for problems": {"problem", v1alpha1.ConditionReady, "False InternalError", "build", 25},
		"releasing an object":  {"release", v1alpha1.ConditionFinalizersReleased, "False ReleaseFailed", "release", 50},
		"listing":              {"list", v1alpha1.ConditionFinalizersReleased, "False ReleaseFailed", "list", 25},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, finalizing("services"), func(t *testing.T, w *world) {
				w.mu.Lock()
				w.panics[tc.panics] = true
				w.mu.Unlock()
				w.took("")
				w.declare("configmaps")
				after(3 * time.Second)
				w.wantShows(tc.condition, tc.reason)
				after(time.Hour)
				if n := len(w.took(tc.prefix)); n < 2 || n > tc.attempts {
					t.Errorf("%d attempts within an hour, want more than one and at most %d", n, tc.attempts)
				}
				if len(w.warnings) == 0 || !strings.Contains(w.warnings[0], tc.panics) && tc.panics != "end" {
					t.Errorf("the events are %q", w.warnings)
				}
				w.mu.Lock()
				maps.DeleteFunc(w.panics, func(string, bool) bool { return true })
				w.mu.Unlock()
				after(10 * time.Minute)
				w.wantShows(v1alpha1.ConditionReady, "True Running")
				equal(t, "with the finalizer", w.carries(), configMaps)
			})
		})
	}
}

func TestCountersArePublishedAtMostEvery30Seconds(t *testing.T) {
	play(t, finalizing("services"), func(t *testing.T, w *world) {
		count := func(n *v1alpha1.ControllerCounters) { n.Syncs++ }
		after(time.Minute)
		before := w.published()
		after(time.Minute)
		if w.published() != before {
			t.Errorf("%d publications without a change", w.published()-before)
		}
		for range 300 {
			w.counted(count)
			after(time.Second)
		}
		if n := w.published() - before; n < 9 || n > 11 {
			t.Errorf("%d publications within 5 minutes, want one in 30 s", n)
		}
		// A condition is published at once.
		w.mu.Lock()
		w.instance.problem = errors.New("watching is forbidden")
		w.active()
		w.mu.Unlock()
		after(2 * time.Second)
		w.wantShows(v1alpha1.ConditionReady, "False Starting", "watching is forbidden")
		if got := w.controller.Status.Counters.Syncs; got != 300 {
			t.Errorf("%d syncs are published with the condition, want 300", got)
		}
	})
}

func TestAStatusThatIsPrunedIsNotWrittenAgainAndAgain(t *testing.T) {
	play(t, func(t *testing.T) *world {
		t.Helper()
		w := newWorld(t, "services")
		w.pruning, w.controller.Spec.Hooks.Finalize = true, nil
		return w
	}, func(t *testing.T, w *world) {
		after(time.Minute)
		before := w.published()
		if before == 0 {
			t.Error("no status was tried")
		}
		for range 300 {
			w.counted(func(n *v1alpha1.ControllerCounters) { n.Syncs++ })
			after(time.Second)
		}
		if n := w.published() - before; n != 0 {
			t.Errorf("%d publications of numbers that are pruned", n)
		}
		// The definition of the kind is replaced, by which the informer lists its objects anew.
		w.locked(func() { w.pruning = false })
		w.write(func(*v1alpha1.DecoratorController) {})
		after(time.Minute)
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		if got := w.controller.Status.Counters.Syncs; got != 300 {
			t.Errorf("%d syncs are published, want 300", got)
		}
	})
}

func TestAPanicOfCountersEndsNothing(t *testing.T) {
	play(t, finalizing("services"), func(t *testing.T, w *world) {
		w.mu.Lock()
		w.panics["counters"] = true
		w.mu.Unlock()
		w.declare("configmaps") // Conditions are published all the same.
		after(time.Minute)
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		if got := w.controller.Status.ObservedGeneration; got != 2 {
			t.Errorf("the condition is about generation %d, want 2", got)
		}
		w.mu.Lock()
		delete(w.panics, "counters")
		w.mu.Unlock()
		w.counted(func(n *v1alpha1.ControllerCounters) { n.Syncs++ })
		after(time.Minute)
		if got := w.controller.Status.Counters.Syncs; got != 1 {
			t.Errorf("%d syncs are published, want 1", got)
		}
	})
}

func TestAStatusThatAnotherClientWritesIsRepaired(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ControllerStatus){
		"a condition": func(s *v1alpha1.ControllerStatus) { s.Conditions[0].Reason = "NotSelected" },
		"the record":  func(s *v1alpha1.ControllerStatus) { s.FinalizedResources = nil },
		"all of it":   func(s *v1alpha1.ControllerStatus) { *s = v1alpha1.ControllerStatus{} },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, finalizing("services"), func(t *testing.T, w *world) {
				after(time.Minute)
				want, before := w.controller.Status.DeepCopy(), w.published()
				overwrite := func() { w.write(func(c *v1alpha1.DecoratorController) { change(&c.Status.ControllerStatus) }) }
				overwrite()
				after(5 * time.Second)
				if got := w.controller.Status.DeepCopy(); !equality.Semantic.DeepEqual(got, want) {
					t.Errorf("the status is %v, want %v", got, want)
				}
				// Two servers that write against each other do so rarely.
				for range 100 {
					overwrite()
					after(3 * time.Second)
				}
				if n := w.published() - before; n > 12 {
					t.Errorf("%d publications within 5 minutes", n)
				}
			})
		})
	}
}

func TestConditionsOfOtherClientsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "services")
		stop := w.run()
		after(time.Minute)
		before := w.published()
		review := func(status metav1.ConditionStatus) {
			w.write(func(c *v1alpha1.DecoratorController) {
				meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: "example.com/Reviewed", Status: status})
			})
			after(time.Hour)
		}
		review(metav1.ConditionTrue)
		stop()
		defer w.run()()
		after(time.Minute)
		review(metav1.ConditionFalse)
		if w.published() != before {
			t.Errorf("%d publications without a change", w.published()-before)
		}
	})
}

func TestObjectsAreWrittenByPatches(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "c", UID: "u", ResourceVersion: "7"}
	composite := reconciler.OfComposite(&v1alpha1.CompositeController{ObjectMeta: meta})
	decorator := reconciler.OfDecorator(&v1alpha1.DecoratorController{ObjectMeta: meta})
	status := &v1alpha1.ControllerStatus{ObservedGeneration: 3, FinalizedResources: []v1alpha1.FinalizedResource{{Resource: "services"}}}
	const (
		group    = `"apiVersion":"metacontroller.k8s.io/v1alpha1"`
		observed = `"status":{"observedGeneration":3,"finalizedResources":[{"group":"","resource":"services"}]}`
	)
	for name, tc := range map[string]struct {
		write                 func(context.Context, objects) error
		resource, subresource string
		patchType, body       string
	}{
		"the status of a composite": {
			func(ctx context.Context, o objects) error {
				_, err := o.PublishStatus(ctx, composite, "", status)
				return err
			},
			"compositecontrollers", "status", "application/apply-patch+yaml",
			`{` + group + `,"kind":"CompositeController","metadata":{"name":"c","uid":"u"},` + observed + `}`,
		},
		"the status of a decorator in a version": {
			func(ctx context.Context, o objects) error {
				_, err := o.PublishStatus(ctx, decorator, "7", status)
				return err
			},
			"decoratorcontrollers", "status", "application/apply-patch+yaml",
			`{` + group + `,"kind":"DecoratorController","metadata":{"name":"c","resourceVersion":"7","uid":"u"},` + observed + `}`,
		},
		"finalizers": {
			func(ctx context.Context, o objects) error { return o.SetFinalizers(ctx, decorator, []string{"a"}) },
			"decoratorcontrollers", "", "application/merge-patch+json",
			`{` + group + `,"kind":"DecoratorController","metadata":{"finalizers":["a"],"name":"c","resourceVersion":"7","uid":"u"}}`,
		},
		"no finalizers": {
			func(ctx context.Context, o objects) error { return o.SetFinalizers(ctx, composite, nil) },
			"compositecontrollers", "", "application/merge-patch+json",
			`{` + group + `,"kind":"CompositeController","metadata":{"finalizers":[],"name":"c","resourceVersion":"7","uid":"u"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := &fake.Clientset{}
			if err := tc.write(t.Context(), objects{client: client.MetacontrollerV1alpha1(), pruned: &sync.Once{}}); err != nil {
				t.Fatal(err)
			}
			patch, ok := client.Actions()[0].(clienttesting.PatchActionImpl)
			if !ok {
				t.Fatalf("got %v", client.Actions())
			}
			got := []string{patch.Resource.Resource, patch.Subresource, string(patch.PatchType), string(patch.Patch), patch.PatchOptions.FieldManager}
			if want := []string{tc.resource, tc.subresource, tc.patchType, tc.body, fieldManager}; !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestFingerprintsTellWhatIsMissingFromWhatIsNotKnown(t *testing.T) {
	p, _ := serveCluster(t, map[string]string{
		"/api/v1":              `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"served","kind":"Served"}]}`,
		"/apis/example.com/v1": "", // It is not available.
	})
	c := &v1alpha1.CompositeController{}
	c.Spec.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "v1", Resource: "served"}
	for _, rule := range []v1alpha1.ResourceRule{{APIVersion: "v1", Resource: "missing"}, {APIVersion: "example.com/v1", Resource: "unknown"}} {
		c.Spec.ChildResources = append(c.Spec.ChildResources, v1alpha1.CompositeControllerChildResourceRule{ResourceRule: rule})
	}
	got := builder{&reconciler.Shared{Cluster: p}}.Fingerprint(t.Context(), reconciler.OfComposite(c))
	if len(got) != 3 || got[0] == "" || got[1] != "missing" || got[2] != "" {
		t.Errorf("got %q", got)
	}
}
