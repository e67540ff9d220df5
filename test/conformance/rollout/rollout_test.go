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

// Package rollout holds the tests of rolling updates (docs/reference/contract.md#s14, docs/reference/contract.md#s22 line 14) against a real control plane, with the
// server's binary and a hook that is a real HTTP server.
//
// The children are of a kind that only the tests touch, so that a test decides which of them becomes Ready. What order they
// were changed in, and how many were in work at a time, is read off a watch.
package rollout

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// fleetSize is the number of children in the long rollouts.
const fleetSize = 8

// inOrder are the names of the first n ships in the hook's order.
func inOrder(n int) []string {
	names := make([]string, n)
	for i := range n {
		names[i] = fmt.Sprintf("s%02d", i)
	}
	return names
}

func TestRollingUpdates(t *testing.T) {
	w := setUp(t)
	for method, clusterScoped := range map[v1alpha1.ChildUpdateMethod]bool{v1alpha1.ChildUpdateRollingInPlace: false, v1alpha1.ChildUpdateRollingRecreate: true} {
		t.Run(fmt.Sprintf("%sGoesOneByOneAndFinishes/ClusterScoped=%v", method, clusterScoped), func(t *testing.T) {
			finishes(t, w, options{method: method, cluster: clusterScoped, ships: fleetSize})
		})
	}
	t.Run("AnInlineHookIsCalledForTheFormerRevision", func(t *testing.T) {
		finishes(t, w, options{method: v1alpha1.ChildUpdateRollingInPlace, ships: 3, inline: true})
	})
	t.Run("AChildThatIsNotReadyStopsItAndIsNamed", func(t *testing.T) { pauses(t, w) })
	t.Run("ASecondChangeIsFollowed", func(t *testing.T) { follows(t, w) })
	t.Run("MaxUnavailableAllowsMoreAtATime", func(t *testing.T) { several(t, w) })
	t.Run("ARevisionThatSomebodyMadeUpReachesNoHook", func(t *testing.T) { distrusts(t, w) })
}

func finishes(t *testing.T, w *world, o options) {
	s := newScene(t, w, o)
	before := s.revisions()
	if len(before) != 1 || !strings.HasPrefix(before[0].Name, s.resource.Resource+".rollout.example.com-") {
		t.Fatalf("revisions before the rollout: %v", before)
	}
	if l := before[0].Labels; l["metacontroller.k8s.io/apiGroup"] != "rollout.example.com" ||
		l["metacontroller.k8s.io/resource"] != s.resource.Resource || l["controller-uid"] == "" {
		t.Errorf("the revision has the labels %v", l)
	}
	s.update("2")
	s.await("all ships to be of version 2", func() (bool, string) { return s.dock.ready("2") == o.ships, s.dock.String() })
	s.awaitUpdated("True", "OnLatestRevision", "")
	order, largest := s.dock.log("2")
	if !slices.Equal(order, inOrder(o.ships)) {
		t.Errorf("ships were updated in the order %v", order)
	}
	if largest != 1 {
		t.Errorf("%d ships were in work at a time, want 1", largest)
	}
	s.await("the former revision to be gone", func() (bool, string) {
		after := s.revisions()
		return len(after) == 1 && after[0].Name != before[0].Name, fmt.Sprint(len(after), " revisions")
	})
	names := s.revisions()[0].Children
	if len(names) != 1 || names[0].Kind != "Ship" || names[0].APIGroup != "rollout.example.com" || len(names[0].Names) != o.ships {
		t.Fatalf("the revision holds the children %v", names)
	}
	want := "s00"
	if o.cluster {
		want = s.namespace + "/s00"
	}
	if names[0].Names[0] != want {
		t.Errorf("the first child of the revision is %q, want %q", names[0].Names[0], want)
	}
}

func pauses(t *testing.T, w *world) {
	s := newScene(t, w, options{method: v1alpha1.ChildUpdateRollingInPlace, ships: 5})
	s.dock.hold("s02")
	s.update("2")
	s.awaitUpdated("False", "RolloutWaiting", "s02")
	// The ships are watched beside the status of their parent.
	s.await("the ships up to s02, which is not Ready, to have version 2", func() (bool, string) {
		order, _ := s.dock.log("2")
		return slices.Equal(order, inOrder(3)), fmt.Sprint(order)
	})
	s.dock.release(t.Context(), "s02")
	s.await("all ships to be of version 2", func() (bool, string) { return s.dock.ready("2") == 5, s.dock.String() })
	s.awaitUpdated("True", "OnLatestRevision", "")
}

// distrusts has a revision in the middle of a rollout that its author made up.
func distrusts(t *testing.T, w *world) {
	s := newScene(t, w, options{method: v1alpha1.ChildUpdateRollingInPlace, ships: 3})
	s.dock.hold("s01")
	s.update("2")
	s.awaitUpdated("False", "RolloutWaiting", "s01")
	stored := s.revisions()
	i := slices.IndexFunc(stored, func(r v1alpha1.ControllerRevision) bool { return strings.Contains(string(r.ParentPatch.Raw), `"1"`) })
	if i < 0 {
		t.Fatalf("there is no former revision among %v", stored)
	}
	forged := &v1alpha1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Name: "forged", Namespace: stored[i].Namespace, Labels: stored[i].Labels, OwnerReferences: stored[i].OwnerReferences,
	}, Children: stored[i].Children}
	forged.ParentPatch.Raw = []byte(`{"spec":{"version":"forged"}}`)
	client := s.Versioned.MetacontrollerV1alpha1().ControllerRevisions(forged.Namespace)
	if _, err := client.Create(t.Context(), forged, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A change of a revision calls no hook; a change of the parent does, of which the server may be told before it is told of the revision.
	looks := 0
	s.parents.AwaitEventOf(func() {
		looks++
		s.parents.Patch(s.resource, s.namespace, fmt.Sprintf(`{"metadata":{"annotations":{"look":"%d"}}}`, looks))
	}, s.namespace, "Warning", "SyncError", "reading parentPatch of ControllerRevision "+forged.Namespace+"/forged: the digest in the name")
	for _, r := range w.hook.Requests("/sync") {
		if strings.Contains(string(r.Body), `"forged"`) {
			t.Fatal("the hook was shown what somebody made up")
		}
	}
	if err := client.Delete(t.Context(), "forged", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.dock.release(t.Context(), "s01")
	s.await("all ships to be of version 2", func() (bool, string) { return s.dock.ready("2") == 3, s.dock.String() })
	s.awaitUpdated("True", "OnLatestRevision", "")
}

func follows(t *testing.T, w *world) {
	s := newScene(t, w, options{method: v1alpha1.ChildUpdateRollingInPlace, ships: 6})
	s.dock.hold("s03")
	s.update("2")
	s.awaitUpdated("False", "RolloutWaiting", "s03")
	s.update("3")
	// The server may be told of the ship before it is told of the parent.
	s.await("the server to have seen version 3", func() (bool, string) {
		stored := s.revisions()
		return slices.ContainsFunc(stored, func(r v1alpha1.ControllerRevision) bool { return strings.Contains(string(r.ParentPatch.Raw), `"3"`) }), fmt.Sprint(len(stored))
	})
	s.dock.release(t.Context(), "s03")
	s.await("all ships to be of version 3", func() (bool, string) { return s.dock.ready("3") == 6, s.dock.String() })
	s.awaitUpdated("True", "OnLatestRevision", "")
	if order, largest := s.dock.log("3"); !slices.Equal(order, inOrder(6)) || largest != 1 {
		t.Errorf("version 3 reached the ships in the order %v, %d at a time", order, largest)
	}
	if order, _ := s.dock.log("2"); !slices.Equal(order, inOrder(4)) {
		t.Errorf("version 2 reached %v although it was followed by version 3 at s03", order)
	}
	s.await("one revision to be left", func() (bool, string) { n := len(s.revisions()); return n == 1, fmt.Sprint(n) })
}

func several(t *testing.T, w *world) {
	for limit, want := range map[string]int{"3": 3, "50%": 5} {
		t.Run(limit, func(t *testing.T) {
			s := newScene(t, w, options{
				method: v1alpha1.ChildUpdateRollingInPlace, ships: 10, maxUnavailable: new(intstr.Parse(limit)),
			})
			for _, name := range inOrder(10) {
				s.dock.hold(name)
			}
			s.update("2")
			s.await(fmt.Sprintf("%d ships to be in work", want), func() (bool, string) {
				order, largest := s.dock.log("2")
				// They are written side by side, so they arrive in any order.
				slices.Sort(order)
				return largest == want && slices.Equal(order, inOrder(want)), fmt.Sprint(order, largest)
			})
			s.awaitUpdated("False", "RolloutWaiting", "s00")
			for _, name := range inOrder(10) {
				s.dock.release(t.Context(), name)
			}
			s.await("all ships to be of version 2", func() (bool, string) { return s.dock.ready("2") == 10, s.dock.String() })
			if _, largest := s.dock.log("2"); largest > want {
				t.Errorf("%d ships were in work at a time, want at most %d", largest, want)
			}
		})
	}
}

const limit = cluster.Limit

var (
	fleets        = schema.GroupVersionResource{Group: "rollout.example.com", Version: "v1", Resource: "fleets"}
	clusterFleets = schema.GroupVersionResource{Group: "rollout.example.com", Version: "v1", Resource: "clusterfleets"}
	ships         = schema.GroupVersionResource{Group: "rollout.example.com", Version: "v1", Resource: "ships"}
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// world is what all tests share.
type world struct {
	*fixture.Environment

	hook *hooktest.Server
}

func setUp(t *testing.T) *world {
	t.Helper()
	w := &world{hook: hooktest.NewServer(t), Environment: fixture.SetUp(t, fixture.Options{Limit: limit, Resources: []cluster.CustomResource{
		{Resource: fleets, Kind: "Fleet"}, {Resource: clusterFleets, Kind: "ClusterFleet", ClusterScoped: true}, {Resource: ships, Kind: "Ship"},
	}})}
	w.hook.Handle("/sync", hooktest.Composite(fleet))
	return w
}

// fleet wants as many ships as the parent says, of its version, in the parent's namespace or the one that it names.
func fleet(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
	count, _, _ := unstructured.NestedInt64(q.Parent.Object, "spec", "ships")
	version, _, _ := unstructured.NestedString(q.Parent.Object, "spec", "version")
	namespace, _, _ := unstructured.NestedString(q.Parent.Object, "spec", "namespace")
	var response hook.CompositeResponse
	for i := range count {
		ship := &hook.Object{Object: map[string]any{
			"apiVersion": "rollout.example.com/v1", "kind": "Ship", "metadata": map[string]any{"name": fmt.Sprintf("s%02d", i)},
			"spec": map[string]any{"version": version},
		}}
		if namespace != "" {
			ship.SetNamespace(namespace)
		}
		response.Children = append(response.Children, ship)
	}
	return &response, nil
}

// scene is one parent with its ships.
type scene struct {
	*world
	t *testing.T
	// namespace is that of the ships, and the name of the parent and its controller.
	namespace string
	resource  schema.GroupVersionResource
	// parents are the objects of the parent's namespace.
	parents *cluster.Objects
	dock    *dock
}

// options say what a scene is like.
type options struct {
	method         v1alpha1.ChildUpdateMethod
	cluster        bool
	ships          int
	inline         bool
	maxUnavailable *intstr.IntOrString
}

// newScene makes a controller and a parent whose ships are all there and Ready.
func newScene(t *testing.T, w *world, o options) *scene {
	t.Helper()
	s := &scene{world: w, t: t, namespace: w.Namespace(t), resource: fleets}
	s.parents = w.Objects(t, s.namespace, limit)
	kind := "Fleet"
	if o.cluster {
		s.resource, kind, s.parents = clusterFleets, "ClusterFleet", s.parents.In("")
	}
	s.dock = newDock(t, w.Dynamic, s.namespace)
	sync := &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(w.hook.URL("/sync"))}}
	if o.inline { // It does what fleet does.
		sync = fixture.Inline(t, fixture.Composite, `
children:
- forEach: [{name: i, in: "lists.range(parent.spec.ships)"}]
  template: {apiVersion: rollout.example.com/v1, kind: Ship, metadata: {name: "s0${i}"}, spec: {version: "${parent.spec.version}"}}
`)
	}
	controllers.Composite(t, w.Clients, limit, s.namespace, v1alpha1.CompositeControllerSpec{
		GenerateSelector: new(true),
		ParentResource: v1alpha1.CompositeControllerParentResourceRule{
			ResourceRule:    v1alpha1.ResourceRule{APIVersion: "rollout.example.com/v1", Resource: s.resource.Resource},
			LabelSelector:   &metav1.LabelSelector{MatchLabels: map[string]string{"scene": s.namespace}},
			RevisionHistory: &v1alpha1.CompositeControllerRevisionHistory{FieldPaths: []string{"spec.version"}},
		},
		ChildResources: []v1alpha1.CompositeControllerChildResourceRule{{
			ResourceRule: v1alpha1.ResourceRule{APIVersion: "rollout.example.com/v1", Resource: "ships"},
			UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{
				Method: o.method, MaxUnavailable: o.maxUnavailable,
				StatusChecks: v1alpha1.ChildUpdateStatusChecks{Conditions: []v1alpha1.StatusConditionCheck{{Type: "Ready", Status: new("True")}}},
			},
		}},
		Hooks: &v1alpha1.CompositeControllerHooks{Sync: sync},
	})
	s.parents.Create(s.resource, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rollout.example.com/v1", "kind": kind,
		"metadata": map[string]any{"name": s.namespace, "labels": map[string]any{"scene": s.namespace}},
		"spec":     map[string]any{"ships": int64(o.ships), "version": "1", "namespace": s.namespace},
	}})
	s.await("all ships to be Ready", func() (bool, string) { return s.dock.ready("1") == o.ships, s.dock.String() })
	s.awaitUpdated("True", "OnLatestRevision", "latest ControllerRevision: "+s.resource.Resource+".rollout.example.com-")
	return s
}

// update changes the parent's version.
func (s *scene) update(version string) {
	s.t.Helper()
	s.parents.Patch(s.resource, s.namespace, fmt.Sprintf(`{"spec":{"version":%q}}`, version))
}

func (s *scene) await(what string, ask func() (bool, string)) {
	s.t.Helper()
	cluster.Eventually(s.t, limit, what, func(context.Context) (bool, string) { return ask() })
}

// awaitUpdated waits for the parent's condition Updated.
func (s *scene) awaitUpdated(status, reason, message string) {
	s.t.Helper()
	s.parents.Await(s.resource, s.namespace, fmt.Sprintf("to have the condition Updated=%s %s %q", status, reason, message),
		func(o *unstructured.Unstructured) bool {
			if o == nil {
				return false
			}
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			for _, each := range conditions {
				c, ok := each.(map[string]any)
				if ok && c["type"] == "Updated" && c["status"] == status && c["reason"] == reason {
					text, _ := c["message"].(string)
					return strings.Contains(text, message)
				}
			}
			return false
		})
}

// revisions returns the stored revisions of the parent that children are on.
func (s *scene) revisions() []v1alpha1.ControllerRevision {
	s.t.Helper()
	namespace := s.parents.Namespace
	if namespace == "" {
		namespace = "metacontroller"
	}
	list, err := s.Versioned.MetacontrollerV1alpha1().ControllerRevisions(namespace).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(r v1alpha1.ControllerRevision) bool {
		owner := metav1.GetControllerOf(&r)
		return owner == nil || owner.Name != s.namespace || len(r.Children) == 0
	})
}

// dock watches ships, makes them Ready, and takes the log.
type dock struct {
	client dynamic.ResourceInterface

	mu      sync.Mutex
	ships   map[string]*unstructured.Unstructured
	held    map[string]bool
	order   map[string][]string // by version
	largest map[string]int      // by version: the most ships in work at a time
	err     error
}

func newDock(t *testing.T, client dynamic.Interface, namespace string) *dock {
	t.Helper()
	d := &dock{
		client: client.Resource(ships).Namespace(namespace), ships: map[string]*unstructured.Unstructured{}, held: map[string]bool{},
		order: map[string][]string{}, largest: map[string]int{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, err := d.client.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		for e := range events.ResultChan() {
			if o, ok := e.Object.(*unstructured.Unstructured); ok {
				d.seen(ctx, e.Type, o)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		events.Stop()
		watching.Wait()
		if d.err != nil {
			t.Errorf("making a ship Ready: %v", d.err)
		}
	})
	return d
}

func (d *dock) seen(ctx context.Context, event watch.EventType, o *unstructured.Unstructured) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := o.GetName()
	if event == watch.Deleted {
		delete(d.ships, name)
		return
	}
	before := d.ships[name]
	d.ships[name] = o
	version := versionOf(o)
	if before == nil || versionOf(before) != version {
		d.order[version] = append(d.order[version], name)
		working := 0
		for _, ship := range d.ships {
			if versionOf(ship) == version && !isReady(ship) {
				working++
			}
		}
		d.largest[version] = max(d.largest[version], working)
	}
	if !isReady(o) && !d.held[name] {
		d.bless(ctx, o)
	}
}

// bless makes a ship Ready. A conflict says that the ship has changed, of which an event is on its way.
func (d *dock) bless(ctx context.Context, o *unstructured.Unstructured) {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{"observedGeneration":%d,"conditions":[{"type":"Ready","status":"True"}]}}`,
		o.GetResourceVersion(), o.GetGeneration())
	_, err := d.client.Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		d.err = err
	}
}

// hold keeps a ship from becoming Ready.
func (d *dock) hold(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[name] = true
}

// release lets a ship become Ready.
func (d *dock) release(ctx context.Context, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.held, name)
	if o := d.ships[name]; o != nil {
		d.bless(ctx, o)
	}
}

// ready returns the number of Ready ships of a version.
func (d *dock) ready(version string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, o := range d.ships {
		if versionOf(o) == version && isReady(o) {
			n++
		}
	}
	return n
}

// log returns the order in which ships came to a version, and the most that were in work at a time.
func (d *dock) log(version string) ([]string, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.order[version]), d.largest[version]
}

func (d *dock) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var lines []string
	for name, o := range d.ships {
		lines = append(lines, fmt.Sprintf("%s version %s ready %v", name, versionOf(o), isReady(o)))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func versionOf(o *unstructured.Unstructured) string {
	version, _, _ := unstructured.NestedString(o.Object, "spec", "version")
	return version
}

func isReady(o *unstructured.Unstructured) bool {
	seen, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return len(conditions) > 0 && seen >= o.GetGeneration()
}
