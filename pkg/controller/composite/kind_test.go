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

package composite

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
)

func parsed(t testing.TB, format string, args ...any) *object.Object {
	t.Helper()
	o, err := object.Parse(fmt.Appendf(nil, format, args...), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// responses has the same status and body for each request.
type responses struct {
	status int
	body   string
}

// RoundTrip implements http.RoundTripper.
func (f responses) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: f.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(f.body)), Request: r,
	}, nil
}

// midRollout is a kind whose parents are in the middle of a rolling update when they are deleted.
type midRollout struct{ *kind }

// Decide implements reconciler.Kind.
func (m midRollout) Decide(ctx context.Context, s *reconciler.Sync) error {
	if s.Parent.Deleting() {
		return m.kind.Decide(ctx, s)
	}
	s.Rollout(true, 2, 1)
	return nil
}

// declared is a kind of children in one version, with the objects that there are.
type declared struct {
	rule    children.Rule
	objects []any
}

// rolling is a CompositeController whose children roll, over a cluster that has nothing but one parent, revisions and perhaps children.
type rolling struct {
	hooks v1alpha1.CompositeControllerHooks
	// api answers the requests to the cluster. If it is nil, nothing is found.
	api http.RoundTripper
	// hook answers the calls of hooks, and own the writes of revisions, which fail if it is nil.
	hook, own http.RoundTripper
	parent    *object.Object
	stored    []any
	children  []declared
	// decides replaces a part of the kind, unless it is nil.
	decides func(*kind) reconciler.Kind
}

// run runs the controller until the test ends. It returns the informers of parents and revisions, too.
func (r rolling) run(t *testing.T) (c *reconciler.Controller, parents, revisions *cache.Informer) {
	t.Helper()
	config := &rest.Config{Host: "http://api", Transport: r.api}
	if r.api == nil {
		config.Transport = responses{http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`}
	}
	host, err := cluster.New(cluster.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	if r.own == nil {
		r.own = config.Transport
	}
	own, err := versioned.NewForConfig(&rest.Config{Host: "http://own", Transport: r.own})
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := events.NewRecorder(events.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	shared := &reconciler.Shared{
		Options: reconciler.Options{HookTransport: r.hook}.WithDefaults(), Cluster: host, Recorder: recorder,
		Own:     reconciler.Own{Cache: host.Cache, Client: own},
		Applier: apply.New(apply.Options{Client: host.Client}), Expectations: &expectations.Registry{},
	}
	k := &kind{
		generates: true, shared: shared,
		planner:  rollout.New(rollout.Config{Rules: map[schema.GroupKind]v1alpha1.CompositeControllerChildUpdateStrategy{{Kind: "Pod"}: {}}}),
		resource: discovery.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "things"}, Kind: "Thing"},
	}
	var decides reconciler.Kind = k
	if r.decides != nil {
		decides = r.decides(k)
	}
	parents = host.Cache.Acquire(cache.Query{Resource: k.resource.GroupVersionResource})
	revisions = host.Cache.Acquire(cache.Query{Resource: revisionResource})
	lists := map[*cache.Informer][]any{parents: {r.parent}, revisions: r.stored}
	var rules []children.Rule
	for _, d := range r.children {
		rules = append(rules, d.rule)
		lists[host.Cache.Acquire(cache.Query{Resource: d.rule.Resource})] = d.objects
	}
	for informer, list := range lists {
		if err := informer.Replace(list, "1"); err != nil {
			t.Fatal(err)
		}
	}
	c, err = reconciler.New(reconciler.Config{
		Kind: decides, Selectors: related.NewSelectors(rollout.LabelControllerUID),
		Resolver: reconciler.Resolver{
			Shared: shared, Children: rules,
			Sources: []*reconciler.Source{{Resource: k.resource, Labels: labels.Everything(), Selected: func(*object.Object) bool { return true }}},
		},
		Definition: reconciler.OfComposite(&v1alpha1.CompositeController{
			ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1alpha1.CompositeControllerSpec{Hooks: &r.hooks},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(ctx) })
	running.Go(func() { c.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	<-c.Started()
	return c, parents, revisions
}

// TestARolloutEndsWithTheManagementOfChildren deletes a parent in the middle of a rolling update, which its finalizers keep.
func TestARolloutEndsWithTheManagementOfChildren(t *testing.T) {
	const ours, theirs = `"metacontroller.io/compositecontroller-c"`, `"example.com/theirs"`
	hook := &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:1/hook")}}
	for name, tc := range map[string]struct {
		reason string
		hooks  v1alpha1.CompositeControllerHooks
		// before and now are the finalizers of the parent, without and with its deletion.
		before, now string
		hook        responses
	}{
		"no finalize hook": {
			"Nobody manages its children.",
			v1alpha1.CompositeControllerHooks{Sync: hook},
			theirs, theirs,
			responses{http.StatusOK, `{"children":[]}`},
		},
		"no finalize hook, and the sync hook fails": {
			"No response is needed to know that.",
			v1alpha1.CompositeControllerHooks{Sync: hook},
			theirs, theirs,
			responses{http.StatusInternalServerError, ""},
		},
		"deletion of its dependents": {
			"The garbage collector deletes its children.",
			v1alpha1.CompositeControllerHooks{Sync: hook, Finalize: hook},
			ours, ours + `,"foregroundDeletion"`,
			responses{http.StatusOK, `{"children":[],"finalized":false}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				thing := func(version int, finalizers, metadata string) *object.Object {
					return parsed(t, `{"apiVersion":"g/v1","kind":"Thing","metadata":{"name":"a","uid":"u","resourceVersion":"%d","finalizers":[%s]%s}}`,
						version, finalizers, metadata)
				}
				c, parents, _ := rolling{
					hooks: tc.hooks, hook: tc.hook, parent: thing(1, tc.before, ""), decides: func(k *kind) reconciler.Kind { return midRollout{k} },
				}.run(t)
				<-time.After(time.Second)
				if h := c.Health(); h.Rolling != 1 || h.Outdated != 2 {
					t.Fatalf("before the deletion %d parents are rolling with %d children left, want 1 and 2", h.Rolling, h.Outdated)
				}
				if err := parents.Update(thing(2, tc.now, `,"deletionTimestamp":"2026-01-01T00:00:00Z"`)); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Second)
				if h := c.Health(); h.Rolling != 0 || h.Outdated != 0 {
					t.Errorf("%d parents are rolling with %d children left, want none. %s", h.Rolling, h.Outdated, tc.reason)
				}
			})
		})
	}
}

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kindsOf are the kinds of the resources that a cluster serves, in each group-version.
type kindsOf map[string]string

// RoundTrip implements http.RoundTripper.
func (k kindsOf) RoundTrip(r *http.Request) (*http.Response, error) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
	for resource, kind := range k {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource, Kind: kind, Namespaced: true})
	}
	body, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return responses{http.StatusOK, string(body)}.RoundTrip(r)
}

// TestChildrenOfAnUnservedKindStayOnTheirRevision plans for a controller of which the kind B is not served, with an older revision that has a
// child of a kind.
func TestChildrenOfAnUnservedKindStayOnTheirRevision(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// a, b and c are the methods of the rules; the kind A is of another group.
		a, b, c v1alpha1.ChildUpdateMethod
		served  kindsOf
		claimed schema.GroupKind
		left    int
	}{
		"it rolls":            {"It is waited for.", "RollingInPlace", "RollingRecreate", "InPlace", kindsOf{"as": "A", "cs": "C"}, schema.GroupKind{Group: "g", Kind: "B"}, 1},
		"it does not roll":    {"It would not wait.", "RollingInPlace", "InPlace", "InPlace", kindsOf{"as": "A", "cs": "C"}, schema.GroupKind{Group: "g", Kind: "B"}, 0},
		"another kind":        {"It is served, and does not roll.", "RollingInPlace", "RollingInPlace", "InPlace", kindsOf{"as": "A", "cs": "C"}, schema.GroupKind{Group: "g", Kind: "C"}, 0},
		"another group":       {"Nobody declares it.", "RollingInPlace", "RollingInPlace", "InPlace", kindsOf{"as": "A", "cs": "C"}, schema.GroupKind{Group: "h", Kind: "B"}, 0},
		"it is served again":  {"The hook does not return it.", "RollingInPlace", "RollingInPlace", "InPlace", kindsOf{"as": "A", "bs": "B", "cs": "C"}, schema.GroupKind{Group: "g", Kind: "B"}, 0},
		"two are not served":  {"One of them rolls.", "RollingInPlace", "InPlace", "RollingInPlace", kindsOf{"as": "A"}, schema.GroupKind{Group: "g", Kind: "B"}, 1},
		"a kind of that name": {"It is another one.", "RollingInPlace", "RollingInPlace", "InPlace", kindsOf{"as": "B", "cs": "C"}, schema.GroupKind{Group: "a", Kind: "B"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			rule := func(apiVersion, resource string, method v1alpha1.ChildUpdateMethod) v1alpha1.CompositeControllerChildResourceRule {
				return v1alpha1.CompositeControllerChildResourceRule{
					ResourceRule:   v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource},
					UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{Method: method},
				}
			}
			served, err := cluster.New(cluster.Options{Config: &rest.Config{Host: "http://api", Transport: tc.served}})
			if err != nil {
				t.Fatal(err)
			}
			k := &kind{shared: &reconciler.Shared{Cluster: served}, spec: &v1alpha1.CompositeControllerSpec{
				ChildResources: []v1alpha1.CompositeControllerChildResourceRule{rule("a/v1", "as", tc.a), rule("g/v1", "bs", tc.b), rule("g/v1", "cs", tc.c)},
			}}
			if err := k.resolveChildren(t.Context(), &reconciler.Resolver{Shared: k.shared}); err != nil {
				t.Fatal(err)
			}
			revisions := func(n int64, stored ...*v1alpha1.ControllerRevision) []rollout.Revision {
				list, err := k.planner.Revisions(map[string]any{"metadata": map[string]any{"name": "p", "uid": "u"}, "spec": map[string]any{"n": n}}, stored)
				if err != nil {
					t.Fatal(err)
				}
				return list
			}
			old := revisions(1)[0].Object
			old.Children = []v1alpha1.ControllerRevisionChildren{{APIGroup: tc.claimed.Group, Kind: tc.claimed.Kind, Names: []string{"b0"}}}
			var desired []children.Desired
			if tc.claimed.Kind == "C" {
				desired = append(desired, children.Desired{Key: children.Key{Group: "g", Kind: "C", Name: "b0"}})
			}
			plan, err := k.planner.Plan(rollout.Input{Revisions: revisions(2, old), Responses: []rollout.Response{{Desired: desired}, {Desired: desired}}})
			if err != nil {
				t.Fatal(err)
			}
			if plan.Outdated != tc.left {
				t.Errorf("%d children are left, want %d. %s", plan.Outdated, tc.left, tc.reason)
			}
			retires := slices.ContainsFunc(plan.Writes, func(w rollout.Write) bool { return w.Revision.Name == old.Name && len(w.Revision.Children) == 0 })
			if retires != (tc.left == 0) {
				t.Errorf("the revision retires: %t. %s", retires, tc.reason)
			}
		})
	}
}

// claims is a kind that claims children and does nothing with them. It notes how many children each sync observes.
type claims struct {
	*kind

	mu       sync.Mutex
	observed []int
}

// Decide implements reconciler.Kind.
func (c *claims) Decide(_ context.Context, s *reconciler.Sync) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observed = append(c.observed, len(s.Observed))
	return nil
}

// Write implements reconciler.Kind.
func (*claims) Write(context.Context, *reconciler.Sync) error { return nil }

func (c *claims) syncs() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.observed)
}

// owned is an API server with the parent, which returns an object that is written as owned by it, in the version of the request.
type owned struct {
	parent *object.Object

	mu sync.Mutex
	// writes are the requests that write.
	writes []string
}

// child returns the object w in a version, with more metadata.
func child(version, metadata string) string {
	return fmt.Sprintf(`{"apiVersion":"g/%s","kind":"Widget","metadata":{"namespace":"ns","name":"w","uid":"w","labels":{"controller-uid":"u"}%s}}`,
		version, metadata)
}

// RoundTrip implements http.RoundTripper.
func (o *owned) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		if path.Base(path.Dir(r.URL.Path)) != "things" {
			return responses{http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`}.RoundTrip(r)
		}
		return responses{http.StatusOK, string(o.parent.JSON())}.RoundTrip(r)
	}
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if strings.Contains(r.URL.Path, "/events") {
		o.writes = append(o.writes, "event")
		return responses{http.StatusOK, string(sent)}.RoundTrip(r)
	}
	o.writes = append(o.writes, r.Method+" "+path.Base(r.URL.Path))
	body := child(strings.Split(r.URL.Path, "/")[3],
		`,"resourceVersion":"10","ownerReferences":[{"apiVersion":"g/v1","kind":"Thing","name":"a","uid":"u","controller":true}]`)
	return responses{http.StatusOK, body}.RoundTrip(r)
}

func (o *owned) sent() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.writes)
}

// TestAnOrphanOfAKindInTwoVersionsIsAdoptedOnce has rules for both versions, whose informers show the orphan. The informer of the version in
// which it is adopted shows that at once, and the other one does not before expectations.Limit.
func TestAnOrphanOfAKindInTwoVersionsIsAdoptedOnce(t *testing.T) {
	for _, versions := range [][]string{{"v1", "v1beta1"}, {"v1beta1", "v1"}} {
		t.Run(strings.Join(versions, " before "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &owned{parent: numbered(t, 1)}
				scene := rolling{hooks: syncHook, api: api, parent: api.parent}
				for _, version := range versions {
					resource := schema.GroupVersionResource{Group: "g", Version: version, Resource: "widgets"}
					scene.children = append(scene.children, declared{
						children.Rule{
							Kind: resource.GroupVersion().WithKind("Widget"), Resource: resource, Namespaced: true, Method: v1alpha1.ChildUpdateInPlace,
						},
						[]any{parsed(t, "%s", child(version, `,"resourceVersion":"1"`))},
					})
				}
				var k *claims
				scene.decides = func(of *kind) reconciler.Kind { k = &claims{kind: of}; return k }
				c, parents, _ := scene.run(t)
				synctest.Wait()
				want := []string{"PATCH w", "event"}
				if sent := api.sent(); !slices.Equal(sent, want) {
					t.Errorf("%q is sent, want %q", sent, want)
				}
				if err := parents.Update(numbered(t, 2)); err != nil {
					t.Fatal(err)
				}
				<-time.After(2 * expectations.Limit)
				if sent := api.sent(); !slices.Equal(sent, want) {
					t.Errorf("with the next sync %q was sent, want %q", sent, want)
				}
				if observed := k.syncs(); !slices.Equal(observed, []int{1, 1}) || c.Health().Failing != 0 {
					t.Errorf("the syncs observed %v children, and %d parents fail; want two with one child, and none", observed, c.Health().Failing)
				}
			})
		})
	}
}
