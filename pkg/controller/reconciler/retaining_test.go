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

package reconciler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// leaving is a kind like CompositeControllers with widgets that stay without their parent.
type leaving struct {
	*kind

	scene *scene
}

func (k leaving) Observe(_ context.Context, s *reconciler.Sync) error {
	s.Scope = children.Scope{Field: "children", Selector: labels.Everything()}
	return s.Children(func(i int, _ *children.Rule, informer *cache.Informer) error {
		observed := informer.ControlledBy(s.Parent.UID())
		s.Show(i, observed, observed)
		return nil
	})
}

func (leaving) Decide(ctx context.Context, s *reconciler.Sync) error { return s.Decide(ctx) }

func (leaving) Write(ctx context.Context, s *reconciler.Sync) error {
	if s.Decision.Finalized {
		return parent.IgnoreGone(s.RemoveFinalizer(ctx))
	}
	if s.ManagesChildren() {
		return s.ReconcileChildren(ctx, "children")
	}
	s.LeaveChildren()
	return nil
}

// store is an API server with a few objects, which shows each write to the informers, and notes it. An object in stale was changed by somebody else
// before the first write of it.
type store struct {
	scene *scene

	mu      sync.Mutex
	objects map[string]*object.Object
	stale   map[string]bool
	version int
	writes  []string
}

func (a *store) roundTrip(r *http.Request) (int, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	o := a.objects[name]
	body := []byte{}
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	switch {
	case strings.Contains(r.URL.Path, "/events"):
		return http.StatusOK, string(body)
	case r.Method == http.MethodGet && o != nil:
		return http.StatusOK, string(o.JSON())
	case o == nil || r.Method == http.MethodGet:
		return http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"x"}}`
	case r.Method == http.MethodDelete:
		a.writes = append(a.writes, "delete "+name)
		delete(a.objects, name)
		_ = a.scene.widgets.Delete(o)
		return http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	}
	a.version++
	if a.stale[name] {
		a.stale[name] = false
		a.put(o, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"changed": "yes"}}})
		return http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`
	}
	var patch map[string]any
	if json.Unmarshal(body, &patch) != nil {
		return http.StatusBadRequest, `{}`
	}
	a.writes = append(a.writes, "patch "+name)
	return http.StatusOK, string(a.put(o, patch).JSON())
}

// put stores an object with changes of its metadata.
func (a *store) put(o *object.Object, patch map[string]any) *object.Object {
	content, err := o.Decode()
	if err != nil {
		a.scene.t.Error(err)
	}
	metadata, _ := content["metadata"].(map[string]any)
	changes, _ := patch["metadata"].(map[string]any)
	for field, value := range changes {
		if value != nil {
			metadata[field] = value
		}
	}
	metadata["resourceVersion"] = fmt.Sprint(100 + a.version)
	text, _ := json.Marshal(content)
	written := parse(a.scene.t, string(text))
	a.objects[o.Name()] = written
	informer := a.scene.widgets
	if o.Kind() == "Thing" {
		informer = a.scene.things
	}
	if o.Kind() == "Thing" && parent.Ended(written) {
		delete(a.objects, o.Name())
		_ = informer.Delete(written)
	} else {
		_ = informer.Update(written)
	}
	return written
}

// TestChildrenStayWithoutTheirParent deletes the parent p of a controller whose children stay.
func TestChildrenStayWithoutTheirParent(t *testing.T) {
	const (
		deleting = `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
		keeper   = `,"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"kube-system","uid":"ns"}]`
	)
	wanted := func(names ...string) string {
		list := make([]string, len(names))
		for i, name := range names {
			list[i] = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `"}}`
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	for name, tc := range map[string]struct {
		reason string
		// finalize is what the finalize hook returns: each response of a list, the last one for ever; nil for no such hook.
		finalize []string
		parent   string
		stale    []string
		children []*object.Object
		retain   bool
		// writes are those in order, and owned are the widgets that are left with an owner.
		writes, owned []string
		calls         bool
	}{
		"without a finalize hook": {
			reason: "No hook decides about it.", parent: `,"finalizers":[` + ours + `]`, retain: true,
			children: []*object.Object{widget(t, "w", 1, "p", ""), widget(t, "others", 1, "q", "")},
			writes:   []string{"patch w", "patch p"}, owned: []string{"others"},
		},
		"with another finalizer": {
			reason: "The sync hook is called as long as it is there, and decides nothing.", parent: `,"finalizers":[` + ours + `,` + theirs + `]`, retain: true,
			children: []*object.Object{widget(t, "w", 1, "p", "")},
			writes:   []string{"patch w", "patch p"}, calls: true,
		},
		"before it got the finalizer": {
			reason: "It is not put on any more.", parent: `,"finalizers":[` + theirs + `]`, retain: true,
			children: []*object.Object{widget(t, "w", 1, "p", "")},
			writes:   []string{"patch w"}, calls: true,
		},
		"and a child that changes in that moment": {
			reason: "The finalizer waits for it.", parent: `,"finalizers":[` + ours + `]`, retain: true, stale: []string{"w"},
			children: []*object.Object{widget(t, "v", 1, "p", ""), widget(t, "w", 1, "p", "")},
			writes:   []string{"patch v", "patch w", "patch p"}, calls: true,
		},
		"and the garbage collector was first": {
			reason: "It has taken the parent off, which was deleted in the foreground.", parent: `,"finalizers":["foregroundDeletion",` + ours + `]`, retain: true,
			children: []*object.Object{widget(t, "w", 1, "", keeper), widget(t, "stranger", 1, "", "")},
			writes:   []string{"patch w", "patch p"}, calls: true,
		},
		"that is not selected any more, with another finalizer": {
			reason: "Nobody is asked about it.", parent: `,"labels":{"out":""},"finalizers":["foregroundDeletion",` + ours + `]`, retain: true,
			children: []*object.Object{widget(t, "w", 1, "p", "")},
			writes:   []string{"patch w", "patch p"},
		},
		"and a child that is deleted": {
			reason: "It cannot stay, and keeps nobody waiting.", parent: `,"finalizers":[` + ours + `]`, retain: true,
			children: []*object.Object{widget(t, "w", 1, "p", `,"finalizers":["a/b"]`+deleting)},
			writes:   []string{"patch p"}, owned: []string{"w"},
		},
		"that the finalize hook does not return": {
			reason: "It is let go in place of being deleted, so that the hook is done.", parent: `,"finalizers":[` + ours + `]`, retain: true,
			finalize: []string{`{"children":[],"finalized":false}`, `{"children":[],"finalized":true}`},
			children: []*object.Object{widget(t, "w", 1, "p", "")},
			writes:   []string{"patch w", "patch p"}, calls: true,
		},
		"that the finalize hook does not return, and that changes in that moment": {
			reason: "It is let go by the next sync, and is not deleted by this one.", parent: `,"finalizers":[` + ours + `]`, retain: true, stale: []string{"w"},
			finalize: []string{`{"children":[],"finalized":false}`, `{"children":[],"finalized":false}`, `{"children":[],"finalized":true}`},
			children: []*object.Object{widget(t, "w", 1, "p", "")},
			writes:   []string{"patch w", "patch p"}, calls: true,
		},
		"that the finalize hook returns to the end": {
			reason: "It is let go when the hook is done.", parent: `,"finalizers":[` + ours + `]`, retain: true,
			finalize: []string{`{"children":` + wanted("w") + `,"finalized":true}`},
			children: []*object.Object{widget(t, "v", 1, "p", ""), widget(t, "w", 1, "p", "")},
			writes:   []string{"patch v", "patch w", "patch p"}, calls: true,
		},
		"of a rule that deletes, with a finalize hook": {
			reason: "As ever.", parent: `,"finalizers":[` + ours + `]`,
			finalize: []string{`{"children":[],"finalized":false}`, `{"children":[],"finalized":true}`},
			children: []*object.Object{widget(t, "w", 1, "p", "")},
			writes:   []string{"delete w", "patch p"}, calls: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &store{objects: map[string]*object.Object{}, stale: map[string]bool{}}
				s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(api.roundTrip)})
				api.scene = s
				for _, name := range tc.stale {
					api.stale[name] = true
				}
				calls := 0
				s.shared.Options.HookTransport = transport(func(*http.Request) (int, string) {
					response := `{"children":[]}`
					if tc.finalize != nil {
						response = tc.finalize[min(calls, len(tc.finalize)-1)]
					}
					calls++
					return http.StatusOK, response
				})
				p := thing(t, "p", 1, deleting+tc.parent, "")
				api.objects["p"] = p
				s.exist(p)
				for _, o := range tc.children {
					api.objects[o.Name()] = o
					s.update(s.widgets, o)
				}
				s.start(&kind{}, func(c *reconciler.Config) {
					c.Kind = leaving{&kind{}, s}
					both := &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:1/hook")}}
					hooks := &v1alpha1.CompositeControllerHooks{Sync: both}
					if tc.finalize != nil {
						hooks.Finalize = both
					}
					rule := v1alpha1.CompositeControllerChildResourceRule{}
					if tc.retain {
						rule.OnParentDeletion = v1alpha1.ParentDeletionRetain
					}
					c.Definition = reconciler.OfComposite(&v1alpha1.CompositeController{
						ObjectMeta: metav1.ObjectMeta{Name: "c"},
						Spec:       v1alpha1.CompositeControllerSpec{Hooks: hooks, ChildResources: []v1alpha1.CompositeControllerChildResourceRule{rule}},
					})
					c.Children[0].Retain = tc.retain
				})
				<-time.After(time.Minute)
				synctest.Wait()
				api.mu.Lock()
				defer api.mu.Unlock()
				var owned []string
				for name, o := range api.objects {
					if len(o.OwnerReferences()) > 0 {
						owned = append(owned, name)
					}
				}
				slices.Sort(owned)
				if !slices.Equal(api.writes, tc.writes) || !slices.Equal(owned, tc.owned) || tc.calls != (calls > 0) {
					t.Errorf("%s\nwrites %q, with owner %q, %d calls; want %q, %q", tc.reason, api.writes, owned, calls, tc.writes, tc.owned)
				}
			})
		})
	}
}

// TestTheFinalizerIsOnParentsThatAreSelected has a controller with children that stay, and no finalize hook.
func TestTheFinalizerIsOnParentsThatAreSelected(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, metadata, response string
		finalizers                 int
		writes                     []string
	}{
		"selected":                      {"It may be deleted at any time.", "", `{"children":[]}`, 1, []string{"patch p"}},
		"selected, as the hook is done": {"The finalizer is not there for the hook.", `,"finalizers":[` + ours + `]`, `{"children":[],"finalized":true}`, 1, nil},
		"not selected any more":         {"As without such children.", `,"labels":{"out":""},"finalizers":[` + ours + `]`, `{"children":[]}`, 0, []string{"patch p"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &store{objects: map[string]*object.Object{}}
				s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(api.roundTrip)})
				s.shared.Options.HookTransport = transport(func(*http.Request) (int, string) { return http.StatusOK, tc.response })
				api.scene = s
				p := thing(t, "p", 1, tc.metadata, "")
				api.objects = map[string]*object.Object{"p": p}
				s.exist(p)
				s.start(&kind{}, func(c *reconciler.Config) {
					c.Kind = leaving{&kind{}, s}
					rule := v1alpha1.CompositeControllerChildResourceRule{OnParentDeletion: v1alpha1.ParentDeletionRetain}
					c.Definition = reconciler.OfComposite(&v1alpha1.CompositeController{
						ObjectMeta: metav1.ObjectMeta{Name: "c"},
						Spec: v1alpha1.CompositeControllerSpec{
							Hooks: &v1alpha1.CompositeControllerHooks{
								Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:1/hook")}},
							},
							ChildResources: []v1alpha1.CompositeControllerChildResourceRule{rule},
						},
					})
					c.Children[0].Retain = true
				})
				<-time.After(time.Minute)
				synctest.Wait()
				api.mu.Lock()
				defer api.mu.Unlock()
				if n := len(api.objects["p"].Finalizers()); n != tc.finalizers || !slices.Equal(api.writes, tc.writes) {
					t.Errorf("%s\n%d finalizers after the writes %q, want %d after %q", tc.reason, n, api.writes, tc.finalizers, tc.writes)
				}
			})
		})
	}
}

// TestAPlanNamesTheChildrenThatStay plans a parent that is deleted while its controller is paused.
func TestAPlanNamesTheChildrenThatStay(t *testing.T) {
	api := &store{objects: map[string]*object.Object{}}
	s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(api.roundTrip)})
	api.scene = s
	s.exist(thing(t, "p", 1, `,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":[`+ours+`]`, ""))
	s.update(s.widgets, widget(t, "w", 1, "p", ""))
	c := s.start(&kind{}, func(c *reconciler.Config) {
		c.Kind = leaving{&kind{}, s}
		c.Definition.Retains, c.Definition.Paused, c.Children[0].Retain = true, true, true
	})
	p, _ := c.Plan(t.Context(), v1alpha1.ParentReference{Group: things.Group, Resource: things.Resource, Name: "p"}, inspection.PlanOptions{})
	if p.Error != "" || len(p.Children) != 1 || p.Children[0].Action != v1alpha1.ChildRetain || p.Children[0].Name != "w" || len(p.Changes) != 1 {
		t.Errorf("planned %+v", p)
	}
	if len(api.writes) > 0 {
		t.Errorf("written %q", api.writes)
	}
}
