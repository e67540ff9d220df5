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
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

var (
	services   = []string{"services/ns/a", "services/ns/b"}
	configMaps = []string{"configmaps/ns/a", "configmaps/ns/b"}
	errRefused = errors.New("the warden is closed")
)

func TestEditsReleaseOnlyWhatIsNotDeclaredAnyMore(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after []string
		hookless      bool
		released      []string
		recorded      []string
	}{
		"a resource is added":            {before: []string{"services"}, after: []string{"services", "configmaps"}, recorded: []string{"services", "configmaps"}},
		"a resource is added in front":   {before: []string{"services"}, after: []string{"configmaps", "services"}, recorded: []string{"services", "configmaps"}},
		"resources are reordered":        {before: []string{"services", "secrets"}, after: []string{"secrets", "services"}, recorded: []string{"services", "secrets"}},
		"another version of a resource":  {before: []string{"g/v1alpha1/services"}, after: []string{"g/v1/services"}, recorded: []string{"services.g"}},
		"a resource is removed":          {before: []string{"services", "secrets"}, after: []string{"secrets"}, released: services, recorded: []string{"secrets"}},
		"a resource replaces another":    {before: []string{"services"}, after: []string{"secrets"}, released: services, recorded: []string{"secrets"}},
		"the hook is removed":            {before: []string{"services"}, after: []string{"services"}, hookless: true, released: services, recorded: []string{}},
		"the hook and then the resource": {before: []string{"services"}, after: []string{"secrets"}, hookless: true, released: services, recorded: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, finalizing(tc.before...), func(t *testing.T, w *world) {
				w.took("")
				if tc.hookless {
					w.write(func(c *v1alpha1.DecoratorController) { c.Spec.Hooks.Finalize = nil })
				}
				w.declare(tc.after...)
				after(time.Minute)
				var want []string
				for _, name := range tc.released {
					want = append(want, "release "+name)
				}
				equal(t, "released", w.took("release"), want)
				equal(t, "recorded", w.recorded(), tc.recorded)
				w.wantShows(v1alpha1.ConditionReady, "True Running")
				if held := w.held(); held == tc.hookless {
					t.Errorf("the controller object is held: %v", held)
				}
			})
		})
	}
}

func TestAnObjectThatCannotBeReleasedKeepsNothingElseFromRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "services")
		w.broken["services/ns/a"] = errRefused
		defer w.run()()
		w.declare("configmaps")
		after(time.Minute)
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		w.wantShows(v1alpha1.ConditionFinalizersReleased, "False ReleaseFailed", "services/ns/a: the warden is closed", "left: 1.", "by hand")
		equal(t, "with the finalizer", w.carries(), append(append([]string{}, configMaps...), "services/ns/a"))
		if len(w.warnings) != 1 {
			t.Errorf("the events are %q, want one", w.warnings)
		}
		w.took("")
		after(time.Hour)
		if n := len(w.took("release")); n > 15 {
			t.Errorf("%d attempts within an hour, want one in 5 minutes", n)
		}
		if len(w.warnings) != 1 {
			t.Errorf("the events are %q, want no more", w.warnings)
		}

		w.declare("services") // The user takes it back.
		after(time.Minute)
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		w.wantShows(v1alpha1.ConditionFinalizersReleased, "True Released")
		equal(t, "with the finalizer", w.carries(), services)
		equal(t, "recorded", w.recorded(), []string{"services"})
	})
}

func TestAResourceThatCannotBeListedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "services", "secrets")
		w.broken["services"] = errors.New("lists are forbidden")
		defer w.run()()
		w.declare("configmaps")
		after(time.Hour)
		w.wantShows(v1alpha1.ConditionFinalizersReleased, "False ReleaseFailed", "services: lists are forbidden")
		equal(t, "with the finalizer", w.carries(), append(append([]string{}, configMaps...), services...))
		w.serve(func() { delete(w.broken, "services") }) // Without waiting for the next attempt.
		equal(t, "with the finalizer", w.carries(), configMaps)
		w.wantShows(v1alpha1.ConditionFinalizersReleased, "True Released")
	})
}

func TestConflictsAreNoFailureAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "services")
		w.broken["services/ns/a"] = apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed"))
		defer w.run()()
		w.declare("configmaps")
		after(5 * time.Second)
		w.wantShows(v1alpha1.ConditionFinalizersReleased, "False Releasing", "1 left")
		after(time.Minute)
		w.wantShows(v1alpha1.ConditionFinalizersReleased, "False ReleaseFailed", "services/ns/a")
	})
}

func TestAnEditInterruptsARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "services")
		w.block("services")
		defer w.run()()
		w.declare("configmaps")
		w.wantShows(v1alpha1.ConditionFinalizersReleased, "False Releasing", "2 left")
		w.declare("services") // Nothing unblocks the release but this.
		after(2 * time.Second)
		w.wantShows(v1alpha1.ConditionReady, "True Running")
		equal(t, "recorded", w.recorded(), []string{"services"})
		equal(t, "with the finalizer", w.carries(), services)
	})
}

func TestDeletion(t *testing.T) {
	for name, tc := range map[string]struct {
		hookless bool
		broken   string
	}{
		"with a finalize hook":                {},
		"without a finalize hook":             {hookless: true},
		"of a controller that cannot release": {broken: "services/ns/b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "services", "configmaps")
				w.controller.Finalizers = []string{"example.com/other"}
				if tc.hookless {
					w.controller.Spec.Hooks.Finalize = nil
				}
				w.broken[tc.broken] = errRefused
				defer w.run()()
				w.delete()
				after(time.Minute)
				if tc.broken != "" {
					w.wantShows(v1alpha1.ConditionReady, "False Terminating", tc.broken+": the warden is closed")
					w.wantShows(v1alpha1.ConditionFinalizersReleased, "False ReleaseFailed", tc.broken)
					equal(t, "with the finalizer", w.carries(), []string{tc.broken})
					if !w.held() {
						t.Error("the controller object is not held while an object carries its finalizer")
					}
					w.breaks(tc.broken, nil)
					after(5 * time.Minute)
				}
				w.wantShows(v1alpha1.ConditionReady, "False Terminating")
				equal(t, "with the finalizer", w.carries(), []string{})
				equal(t, "recorded", w.recorded(), []string{})
				equal(t, "finalizers of the controller object", w.controller.Finalizers, []string{"example.com/other"})
				if w.running != nil {
					t.Error("the controller runs on")
				}
			})
		})
	}
}

// TestObjectsThatAreNotFinalizedAreTold deletes a controller, or takes its hook, while one of two objects is being finalized.
func TestObjectsThatAreNotFinalizedAreTold(t *testing.T) {
	for why, change := range map[string]func(*world){
		"DecoratorController d was deleted.":                    func(w *world) { w.delete() },
		"DecoratorController d does not finalize it any more: ": func(w *world) { w.declare("configmaps") },
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "services")
				w.deleting = map[string]bool{"services/ns/a": true}
				defer w.run()()
				change(w)
				after(time.Minute)
				w.mu.Lock()
				defer w.mu.Unlock()
				if len(w.warnings) != 1 || !strings.HasPrefix(w.warnings[0], "FinalizeSkipped: ") || !strings.Contains(w.warnings[0], why) {
					t.Errorf("the events are %q, want one that says %q", w.warnings, why)
				}
			})
		})
	}
}

func TestARestartTakesUpTheRelease(t *testing.T) {
	for name, change := range map[string]func(*world){
		"after an edit":    func(w *world) { w.declare("configmaps") },
		"after a deletion": func(w *world) { w.delete() },
		"without an edit":  func(*world) {},
		"of an older state": func(w *world) {
			w.write(func(c *v1alpha1.DecoratorController) { c.Status = v1alpha1.DecoratorControllerStatus{} })
		},
		"of an older state that is being deleted": func(w *world) {
			w.write(func(c *v1alpha1.DecoratorController) { c.Status = v1alpha1.DecoratorControllerStatus{} })
			w.delete()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "services")
				w.broken["services"] = errRefused
				stop := w.run()
				stop()
				change(w)
				delete(w.broken, "services")
				defer w.run()()
				after(time.Minute)
				switch {
				case w.gone:
					equal(t, "with the finalizer", w.carries(), []string{})
				case name == "after an edit":
					equal(t, "with the finalizer", w.carries(), configMaps)
					equal(t, "recorded", w.recorded(), []string{"configmaps"})
				default:
					equal(t, "with the finalizer", w.carries(), services)
					equal(t, "recorded", w.recorded(), []string{"services"})
				}
				if wantGone := w.controller.DeletionTimestamp != nil; w.gone != wantGone {
					t.Errorf("the controller object is gone: %v", w.gone)
				}
			})
		})
	}
}

func TestNothingIsFinalizedBeforeItIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "services")
		w.refused = errors.New("the store is full")
		defer w.run()()
		after(time.Minute)
		equal(t, "built", w.took("build"), nil)
		w.mu.Lock()
		w.refused = nil
		w.mu.Unlock()
		after(10 * time.Minute)
		w.wantShows(v1alpha1.ConditionReady, "True Running")
	})
}

func TestNothingRunsWhoseObjectIsGoneBeforeItIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "services")
		w.controller.Status.FinalizedResources = []v1alpha1.FinalizedResource{{Resource: "services"}} // There is nothing to publish.
		w.gone = true
		defer w.run()()
		after(time.Minute)
		equal(t, "built", w.took("build"), nil)
		equal(t, "with the finalizer", w.carries(), []string{})
	})
}

func TestTheHoldComesBack(t *testing.T) {
	play(t, finalizing("services"), func(t *testing.T, w *world) {
		w.write(func(c *v1alpha1.DecoratorController) { c.Finalizers = nil })
		after(10 * time.Second)
		equal(t, "finalizers of the controller object", w.controller.Finalizers, []string{v1alpha1.FinalizerParents})
	})
}

// Whatever happens, in the end exactly the objects that the definition finalizes carry the finalizer, and nothing else is
// recorded.
func TestRandomHistoriesEndWithWhatIsDeclared(t *testing.T) {
	all := []string{"services", "configmaps", "secrets"}
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			w := newWorld(t, "services")
			stop := w.run()
			for range 20 {
				resource := all[random.IntN(len(all))]
				w.mu.Lock()
				switch random.IntN(4) {
				case 0:
					w.broken[resource+"/ns/a"] = errRefused
				case 1:
					delete(w.broken, resource+"/ns/a")
				case 2:
					w.block(resource)
				default:
					w.unblock(resource)
				}
				w.mu.Unlock()
				switch random.IntN(8) {
				case 0:
					stop()
					stop = w.run()
				case 1:
					w.write(func(c *v1alpha1.DecoratorController) { c.Spec.Hooks.Finalize = nil })
				case 2:
					w.write(func(c *v1alpha1.DecoratorController) { c.Spec.Hooks.Finalize = &v1alpha1.Hook{} })
				default:
					random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
					w.write(func(c *v1alpha1.DecoratorController) { c.Spec.Resources = rules(all[:1+random.IntN(2)]...) })
				}
				<-time.After(time.Duration(random.IntN(3)) * time.Second)
			}
			w.mu.Lock()
			clear(w.broken)
			for _, resource := range all {
				w.unblock(resource)
			}
			w.mu.Unlock()
			after(30 * time.Minute)
			want, recorded := []string{}, []string{}
			for _, rule := range w.controller.Spec.Resources {
				if w.controller.Spec.Hooks.Finalize != nil {
					want = append(want, rule.Resource+"/ns/a", rule.Resource+"/ns/b")
					recorded = append(recorded, rule.Resource)
				}
			}
			slices.Sort(want)
			slices.Sort(recorded)
			equal(t, "with the finalizer", w.carries(), want)
			got := w.recorded()
			slices.Sort(got)
			equal(t, "recorded", got, recorded)
			if w.held() != (len(want) > 0) {
				t.Errorf("the controller object is held: %v", w.held())
			}
			w.delete()
			after(10 * time.Minute)
			equal(t, "with the finalizer after the deletion", w.carries(), []string{})
			if !w.gone && len(want) > 0 {
				t.Error("the controller object stays")
			}
			stop()
		})
	}
}

// TestTheObjectThatIsNamedStaysTheSame has one object refused for long, and then another one, whose attempts come more often.
func TestTheObjectThatIsNamedStaysTheSame(t *testing.T) {
	play(t, finalizing("services"), func(t *testing.T, w *world) {
		refuse := func(name string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.objects["services"][name], w.broken["services/"+name] = true, errors.New("refused")
		}
		refuse("ns/b")
		w.declare("configmaps")
		after(time.Hour)
		refuse("ns/a")
		for range 20 {
			after(5 * time.Minute)
			w.wantShows(v1alpha1.ConditionFinalizersReleased, "False ReleaseFailed", "services/ns/b: refused")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.warnings) != 1 {
			t.Errorf("%d warnings, want 1: %q", len(w.warnings), w.warnings)
		}
	})
}

func TestAnotherAccountReleasesAtOnce(t *testing.T) {
	play(t, finalizing("services"), func(t *testing.T, w *world) {
		w.breaks("services/ns/a", errors.New("refused"))
		w.delete()
		after(time.Hour)
		w.took("")
		w.breaks("services/ns/a", nil)
		w.write(func(c *v1alpha1.DecoratorController) {
			c.Spec.ServiceAccountRef = &v1alpha1.ServiceAccountReference{Namespace: "ns", Name: "another"}
		})
		synctest.Wait()
		equal(t, "released", w.took("release"), []string{"release services/ns/a"})
	})
}

// lists counts the lists of parents, none of which carries the finalizer.
type lists struct{ n int }

func (l *lists) Finalized(context.Context, schema.GroupResource, reconciler.Definition) ([]FinalizedParent, error) {
	l.n++
	return nil, nil
}

func (*lists) Warning(*corev1.ObjectReference, string, string) {}

func (*lists) WarningOfParent(_, _ *corev1.ObjectReference, _, _ string) {}

func (*lists) Lifecycle(*corev1.ObjectReference, string, string) {}

// An instance may run for a moment between the end of a release and the wait for the next one.
func TestWhatAnInstanceGaveBackIsReleasedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		services := []schema.GroupResource{{Resource: "services"}}
		d := reconciler.OfDecorator(&v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: "d", DeletionTimestamp: new(metav1.Now())}})
		l, record := &lists{}, newReport(nil, d)
		record.record(services)
		var r *releaser
		ran := false
		r = newReleaser(supervisorConfig{Finalized: l.Finalized, Recorder: l}, record, func() reconciler.Definition { return d }, func() {
			if r.progress() == "" || ran {
				return // The release has not ended.
			}
			ran = true
			r.claim(services)
			record.record(services)
			r.claim(nil)
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.run(ctx) })
		synctest.Wait()
		if left := record.recorded(); !ran || l.n != 2 || len(left) > 0 {
			t.Errorf("the instance ran: %t; objects were listed %d times, want twice; %v is recorded still", ran, l.n, left)
		}
		stop()
		running.Wait()
	})
}

const (
	things = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
{"name":"things","kind":"Thing","namespaced":true,"verbs":["get","list","patch"]}]}`
	thingList = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":[
{"metadata":{"name":"a","namespace":"ns","uid":"ua","resourceVersion":"1","finalizers":["other","f"]}},
{"metadata":{"name":"b","namespace":"ns","uid":"ub","resourceVersion":"2","finalizers":["other"]}},
{"metadata":{"name":"c","namespace":"ns","uid":"uc","resourceVersion":"3","finalizers":["f"]}}]}`
	notFound = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
)

// serveCluster serves paths with bodies; all else is not found. It returns what was written.
func serveCluster(t *testing.T, paths map[string]string) (*cluster.Cluster, *[]string) {
	t.Helper()
	var written []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPatch {
			body, _ := io.ReadAll(r.Body)
			written = append(written, strings.TrimPrefix(r.Header.Get("Impersonate-User")+" ", " ")+r.URL.Path+" "+string(body))
		}
		body, ok := paths[r.URL.Path]
		switch {
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			body = notFound
		case body == "":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	window, err := cluster.New(cluster.Options{Config: &rest.Config{Host: server.URL, QPS: -1}})
	if err != nil {
		t.Fatal(err)
	}
	return window, &written
}

func TestFinalizedParentsAreFoundInAnyVersion(t *testing.T) {
	const versions = `{"kind":"APIGroup","apiVersion":"v1","name":"example.com","versions":[{"groupVersion":"example.com/v2","version":"v2"},{"groupVersion":"example.com/v1","version":"v1"}]}`
	for name, tc := range map[string]struct {
		paths map[string]string
		want  []string
		err   string
	}{
		"another version": {
			paths: map[string]string{
				"/apis/example.com": versions, "/apis/example.com/v1": things, "/apis/example.com/v1/things": thingList,
				"/apis/example.com/v2": `{"kind":"APIResourceList","groupVersion":"example.com/v2","resources":[]}`,
			},
			want: []string{"things.example.com/ns/a", "things.example.com/ns/c"},
		},
		"no group": {},
		"no such resource": {paths: map[string]string{
			"/apis/example.com": versions, "/apis/example.com/v1": `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[]}`,
		}},
		"a version that is not available": {
			paths: map[string]string{
				"/apis/example.com": versions, "/apis/example.com/v2": "", "/apis/example.com/v1": things, "/apis/example.com/v1/things": thingList,
			},
			want: []string{"things.example.com/ns/a", "things.example.com/ns/c"},
		},
		"possibly in a version that is not available": {
			paths: map[string]string{"/apis/example.com": versions, "/apis/example.com/v2": ""}, err: "example.com/v2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := serveCluster(t, tc.paths)
			list, err := finalizedParents(t.Context(), p, schema.GroupResource{Group: "example.com", Resource: "things"}, reconciler.Definition{Finalizer: "f"})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("the error is %v, want %q in it", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range list {
				got = append(got, o.Key.String())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestReleaseTakesOneFinalizerOff(t *testing.T) {
	p, written := serveCluster(t, map[string]string{
		"/api": `{"kind":"APIVersions","versions":["v1"]}`, "/api/v1": strings.ReplaceAll(things, "example.com/v1", "v1"),
		"/api/v1/things": thingList, "/api/v1/namespaces/ns/things/a": `{"kind":"Thing","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","uid":"ua"}}`,
	})
	list, err := finalizedParents(t.Context(), p, schema.GroupResource{Resource: "things"}, reconciler.Definition{Finalizer: "f"})
	if err != nil || len(list) != 2 {
		t.Fatalf("got %v, %v", list, err)
	}
	for _, o := range list { // The second one is gone.
		if err := o.Release(t.Context()); err != nil {
			t.Errorf("releasing %s: %v", o.Key, err)
		}
	}
	want := []string{
		`/api/v1/namespaces/ns/things/a {"metadata":{"finalizers":["other"],"resourceVersion":"1","uid":"ua"}}`,
		`/api/v1/namespaces/ns/things/c {"metadata":{"finalizers":[],"resourceVersion":"3","uid":"uc"}}`,
	}
	if !slices.Equal(*written, want) {
		t.Errorf("got  %q\nwant %q", *written, want)
	}
}

// A finalizer is taken off by the account of the latest definition, which may be another one than that which put it there.
func TestFinalizersAreReleasedByTheServiceAccount(t *testing.T) {
	p, written := serveCluster(t, map[string]string{
		"/api": `{"kind":"APIVersions","versions":["v1"]}`, "/api/v1": strings.ReplaceAll(things, "example.com/v1", "v1"),
		"/api/v1/things": thingList, "/api/v1/namespaces/ns/things/a": `{"kind":"Thing","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","uid":"ua"}}`,
	})
	d := reconciler.Definition{Finalizer: "f", Account: &rights.Account{Namespace: "team", Name: "alice"}}
	list, err := finalizedParents(t.Context(), p, schema.GroupResource{Resource: "things"}, d)
	if err != nil || len(list) == 0 {
		t.Fatalf("got %v, %v", list, err)
	}
	if err := list[0].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = `system:serviceaccount:team:alice /api/v1/namespaces/ns/things/a {"metadata":{"finalizers":["other"],"resourceVersion":"1","uid":"ua"}}`
	if !slices.Equal(*written, []string{want}) {
		t.Errorf("got  %q\nwant %q", *written, want)
	}
}
