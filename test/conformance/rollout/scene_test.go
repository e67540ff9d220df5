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
		Hooks: &v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(w.hook.URL("/sync"))}}},
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
