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

package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights/review"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine has one controller of Things in namespaces, with Secrets as children.
type engine struct {
	parents  []inspection.Parent
	resynced []v1alpha1.ParentReference
	// silent says that syncs are not recorded.
	silent bool
	// called counts the calls of hooks by requests.
	called int
	// refuses is the error of rollbacks, and rolledBack are those that were asked for.
	refuses    error
	rolledBack []inspection.RollbackOptions
	// block, if it is not nil, is waited for by plans.
	block chan struct{}
	// planned counts the plans.
	planned atomic.Int32
	// object is that of a child that plans create.
	object []byte
}

func (e *engine) Controller(_, name string, _ types.UID) (inspection.Controller, error) {
	if name != "c" {
		return nil, errors.New("it does not run")
	}
	return e, nil
}

func (e *engine) Candidate(context.Context, runtime.Object) (inspection.Controller, func(), error) {
	return nil, nil, errors.New("no candidates")
}

func (e *engine) Parents() []inspection.Parent { return e.parents }

func (e *engine) Resources() []schema.GroupResource {
	all := []schema.GroupResource{{Group: "example.com", Resource: "things"}}
	for _, p := range e.parents {
		if resource := (schema.GroupResource{Group: p.Group, Resource: p.Resource}); !slices.Contains(all, resource) {
			all = append(all, resource)
		}
	}
	return all
}

func (e *engine) State(p v1alpha1.ParentReference, only v1alpha1.ParentState) (v1alpha1.ControllerParent, bool) {
	return v1alpha1.ControllerParent{ParentReference: p, State: v1alpha1.ParentSynced}, only == "" || only == v1alpha1.ParentSynced
}

func (e *engine) Children() []inspection.Kind {
	return []inspection.Kind{{GroupResource: schema.GroupResource{Resource: "secrets"}, Namespaced: true}}
}

func (e *engine) Resync(parents []v1alpha1.ParentReference) int {
	e.resynced = append(e.resynced, parents...)
	return len(parents)
}

// Syncs has one sync of each parent, which a Service elsewhere triggered, and which created a Secret and a ConfigMap.
func (e *engine) Syncs(parents []v1alpha1.ParentReference, limit int) (syncs []v1alpha1.ControllerSync, more int, recorded bool) {
	for _, p := range parents[:min(limit, len(parents))] {
		syncs = append(syncs, v1alpha1.ControllerSync{
			ParentReference: p,
			Triggers: []v1alpha1.SyncTrigger{
				{Reason: v1alpha1.SyncRelatedChanged, Object: &v1alpha1.SyncObject{Resource: "services", Namespace: "elsewhere", Name: "s"}, Fields: []string{"spec"}},
				{Reason: v1alpha1.SyncTimer},
			},
			Children: []v1alpha1.SyncChild{
				{Action: v1alpha1.ChildCreate, SyncObject: v1alpha1.SyncObject{Resource: "secrets", Namespace: p.Namespace, Name: "one"}},
				{Action: v1alpha1.ChildCreate, SyncObject: v1alpha1.SyncObject{Resource: "configmaps", Namespace: p.Namespace, Name: "two"}},
			},
		})
	}
	return syncs, len(parents) - len(syncs), !e.silent
}

// Requests has one request, which shows a Service elsewhere.
func (e *engine) Requests(
	_ context.Context, _ v1alpha1.ParentReference, o inspection.RequestOptions,
) ([]v1alpha1.HookRequest, []inspection.Place, error) {
	shown := []inspection.Place{{GroupResource: schema.GroupResource{Resource: "services"}, Namespace: "elsewhere"}}
	if o.Call != nil {
		if err := o.Call(shown); err != nil {
			return nil, nil, errors.New(err.Error())
		}
		e.called++
	}
	return []v1alpha1.HookRequest{{Hook: "sync"}}, shown, nil
}

func (e *engine) Plan(ctx context.Context, p v1alpha1.ParentReference, _ inspection.PlanOptions) (v1alpha1.ParentPlan, []inspection.Place) {
	e.planned.Add(1)
	if e.block != nil {
		select {
		case <-e.block:
		case <-ctx.Done():
		}
	}
	created := v1alpha1.ChildPlan{Action: v1alpha1.ChildCreate, Object: &runtime.RawExtension{Raw: e.object}}
	return v1alpha1.ParentPlan{ParentReference: p, Children: []v1alpha1.ChildPlan{created, {Action: v1alpha1.ChildLeave}}}, nil
}

// reviews allow what allowed says, as "get things ns", and count how often they are asked.
type reviews struct {
	authorizationclient.SubjectAccessReviewInterface

	allowed []string
	asked   int
}

func (r *reviews) Create(_ context.Context, asked *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	r.asked++
	a := asked.Spec.ResourceAttributes
	resource := strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/")
	asked.Status.Allowed = asked.Spec.User == "jane" && slices.Contains(r.allowed, strings.TrimSpace(a.Verb+" "+resource+" "+a.Namespace))
	return asked, nil
}

func thing(namespace, name string) inspection.Parent {
	return inspection.Parent{
		ParentReference: v1alpha1.ParentReference{Group: "example.com", Resource: "things", Namespace: namespace, Name: name},
		Labels:          labels.Set{"name": name},
	}
}

// scene returns the subresources of an engine, and a context of jane.
func scene(t *testing.T, e inspection.Engine, r *reviews) (*subresource, context.Context) {
	t.Helper()
	link := &inspection.Link{}
	link.Connect(e)
	i := New(Config{Engine: link, Reviews: r})
	// One review after the other, since they are counted.
	i.reviewer = review.New(r, 1)
	s := &subresource{Inspector: i, kind: "CompositeController", resource: "compositecontrollers", get: func(_ context.Context, name string) (metav1.Object, error) {
		if name == "nobody" {
			return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
		}
		return &metav1.ObjectMeta{Name: name}, nil
	}}
	return s, genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "jane"})
}

func namesOf[T any](list []T, name func(T) v1alpha1.ParentReference) string {
	var names []string
	for _, each := range list {
		p := name(each)
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return strings.Join(names, " ")
}

func TestCallersSeeWhatTheyMayGet(t *testing.T) {
	all := []inspection.Parent{thing("one", "b"), thing("two", "a"), thing("one", "a"), thing("three", "a")}
	for name, tc := range map[string]struct {
		allowed        []string
		parents, plans string
		reviews        int
	}{
		"nothing":                        {nil, "", "", 4},
		"everything":                     {[]string{"get things", "get secrets"}, "one/a one/b three/a two/a", "one/a one/b three/a two/a", 1},
		"parents everywhere":             {[]string{"get things"}, "one/a one/b three/a two/a", "", 1},
		"one namespace":                  {[]string{"get things one", "get secrets one"}, "one/a one/b", "one/a one/b", 4},
		"the children of another one":    {[]string{"get things one", "get things two", "get secrets two"}, "one/a one/b two/a", "two/a", 4},
		"children and no parents at all": {[]string{"get secrets"}, "", "", 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reviews{allowed: tc.allowed}
			e := &engine{parents: all}
			s, ctx := scene(t, e, r)
			o, err := (&ParentsREST{s}).Get(ctx, "c", &v1alpha1.ControllerParentOptions{})
			if err != nil {
				t.Fatal(err)
			}
			list, ok := o.(*v1alpha1.ControllerParentList)
			got := namesOf(list.Items, func(p v1alpha1.ControllerParent) v1alpha1.ParentReference { return p.ParentReference })
			if !ok || got != tc.parents || int(list.Hidden)+len(list.Items) != len(all) {
				t.Errorf("parents are %q and %d hidden, want %q", got, list.Hidden, tc.parents)
			}
			if r.asked != tc.reviews {
				t.Errorf("%d reviews were made, want %d", r.asked, tc.reviews)
			}
			o, err = (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			plan, ok := o.(*v1alpha1.ControllerPlan)
			got = namesOf(plan.Status.Parents, func(p v1alpha1.ParentPlan) v1alpha1.ParentReference { return p.ParentReference })
			if !ok || got != tc.plans || int(plan.Status.Hidden)+len(plan.Status.Parents) != len(all) {
				t.Errorf("plans are %q and %d hidden, want %q", got, plan.Status.Hidden, tc.plans)
			}
			if planned := int(e.planned.Load()); planned != len(plan.Status.Parents) {
				t.Errorf("%d parents were planned, which calls their hooks, and %d are shown", planned, len(plan.Status.Parents))
			}
			told := 0
			for next := ""; ; {
				o, err := (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{Spec: v1alpha1.ControllerPlanSpec{Limit: 1, Continue: next}}, nil, nil)
				part, ok := o.(*v1alpha1.ControllerPlan)
				if err != nil || !ok {
					t.Fatal(err)
				}
				told += int(part.Status.Hidden) + len(part.Status.Parents)
				if next = part.Status.Continue; next == "" {
					break
				}
			}
			if told != len(all) {
				t.Errorf("the parts of a plan tell of %d parents, want %d", told, len(all))
			}
		})
	}
}

func TestARequestIsRefusedThatShowsWhatTheCallerMayNotGet(t *testing.T) {
	for name, tc := range map[string]struct {
		allowed []string
		refused string
	}{
		"all of it":               {[]string{"get things one", "get secrets one", "get services elsewhere"}, ""},
		"without the parent":      {[]string{"get secrets one", "get services elsewhere"}, "things.example.com in namespace one"},
		"without the children":    {[]string{"get things one", "get services elsewhere"}, "secrets in namespace one"},
		"without related objects": {[]string{"get things one", "get secrets one"}, "services in namespace elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := scene(t, &engine{parents: []inspection.Parent{thing("one", "a")}}, &reviews{allowed: tc.allowed})
			_, err := (&RequestREST{s}).Get(ctx, "c", &v1alpha1.HookRequestOptions{Namespace: "one", Name: "a"})
			if tc.refused == "" && err != nil || tc.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestHooksAreCalledForThoseAloneWhoMayPlanAndSeeTheRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		allowed []string
		called  int
		refused string
	}{
		"all of it": {[]string{"create compositecontrollers/plan", "get things one", "get secrets one", "get services elsewhere"}, 1, ""},
		"who may read everything": {
			[]string{"get things", "get secrets", "get services"},
			0,
			`user "jane" may not create compositecontrollers/plan in API group metacontroller.k8s.io`,
		},
		"without the children":    {[]string{"create compositecontrollers/plan", "get things one", "get services elsewhere"}, 0, "secrets in namespace one"},
		"without related objects": {[]string{"create compositecontrollers/plan", "get things one", "get secrets one"}, 0, "services in namespace elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &engine{parents: []inspection.Parent{thing("one", "a")}}
			s, ctx := scene(t, e, &reviews{allowed: tc.allowed})
			_, err := (&RequestREST{s}).Get(ctx, "c", &v1alpha1.HookRequestOptions{Namespace: "one", Name: "a", Call: true})
			if tc.refused == "" && err != nil || tc.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("%v", err)
			}
			if e.called != tc.called {
				t.Errorf("hooks were called %d times, want %d", e.called, tc.called)
			}
		})
	}
}

func TestPartsOfAListJoin(t *testing.T) {
	var all []inspection.Parent
	for i := range 7 {
		all = append(all, thing("ns", fmt.Sprint("p", i)))
	}
	s, ctx := scene(t, &engine{parents: all}, &reviews{allowed: []string{"get things", "get secrets"}})
	var got []string
	spec := v1alpha1.ControllerPlanSpec{Limit: 3}
	for _, remaining := range []int64{4, 1, 0} {
		o, err := (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{Spec: spec}, nil, nil)
		plan, ok := o.(*v1alpha1.ControllerPlan)
		if err != nil || !ok || plan.Status.Remaining != remaining || (plan.Status.Continue == "") != (remaining == 0) {
			t.Fatalf("%+v, error %v", o, err)
		}
		if n := int64(len(plan.Status.Parents)); plan.Status.Summary != (v1alpha1.PlanSummary{Parents: n, Changing: n, Create: n, Leave: n}) {
			t.Errorf("the summary is %+v", plan.Status.Summary)
		}
		for _, p := range plan.Status.Parents {
			got = append(got, p.Name)
		}
		spec.Continue = plan.Status.Continue
	}
	if diff := cmp.Diff([]string{"p0", "p1", "p2", "p3", "p4", "p5", "p6"}, got); diff != "" {
		t.Errorf("planned (-want +got):\n%s", diff)
	}
}

func TestSelectionsOfParents(t *testing.T) {
	e := &engine{parents: []inspection.Parent{thing("one", "a"), thing("one", "b"), thing("two", "a")}}
	for name, tc := range map[string]struct {
		selection *v1alpha1.ParentSelection
		want      string
	}{
		"all":         {nil, "one/a one/b two/a"},
		"a namespace": {&v1alpha1.ParentSelection{Namespace: "one"}, "one/a one/b"},
		"a name":      {&v1alpha1.ParentSelection{Name: "a"}, "one/a two/a"},
		"a resource":  {&v1alpha1.ParentSelection{Resource: "things.example.com", Name: "b"}, "one/b"},
		"labels":      {&v1alpha1.ParentSelection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "b"}}}, "one/b"},
	} {
		t.Run(name, func(t *testing.T) {
			e.resynced = nil
			s, ctx := scene(t, e, &reviews{allowed: []string{"get things"}})
			o, err := (&ResyncREST{s}).Create(ctx, "c", &v1alpha1.ControllerResync{Spec: v1alpha1.ControllerResyncSpec{Parents: tc.selection}}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := namesOf(e.resynced, func(p v1alpha1.ParentReference) v1alpha1.ParentReference { return p })
			if done, ok := o.(*v1alpha1.ControllerResync); !ok || got != tc.want || done.Status.Parents != int64(len(e.resynced)) {
				t.Errorf("resynced %q, said %+v, want %q", got, o, tc.want)
			}
		})
	}
}

func TestWhatCannotBeServedIsSaid(t *testing.T) {
	s, ctx := scene(t, &engine{}, &reviews{})
	parents := &ParentsREST{s}
	if _, err := parents.Get(ctx, "nobody", &v1alpha1.ControllerParentOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("no such controller: %v", err)
	}
	if _, err := parents.Get(ctx, "stopped", &v1alpha1.ControllerParentOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("one that does not run: %v", err)
	}
	if _, err := parents.Get(t.Context(), "c", &v1alpha1.ControllerParentOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("nobody asks: %v", err)
	}
	s.config.Engine = &inspection.Link{}
	if _, err := parents.Get(ctx, "c", &v1alpha1.ControllerParentOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("no engine: %v", err)
	}
}

func TestNotManyPlansAreMadeAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{parents: []inspection.Parent{thing("one", "a")}, block: make(chan struct{})}
		s, ctx := scene(t, e, &reviews{allowed: []string{"get things", "get secrets"}})
		ended := make(chan error, maxPlans)
		for range maxPlans {
			go func() {
				_, err := (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{}, nil, nil)
				ended <- err
			}()
		}
		synctest.Wait()
		if _, err := (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{}, nil, nil); !apierrors.IsTooManyRequests(err) {
			t.Errorf("one more: %v", err)
		}
		close(e.block)
		for range maxPlans {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if _, err := (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{}, nil, nil); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestSyncsNameWhatTheCallerMayGet(t *testing.T) {
	all := []inspection.Parent{thing("one", "a"), thing("one", "b"), thing("two", "a")}
	for name, tc := range map[string]struct {
		allowed []string
		syncs   string
		// trigger and children are those of the first sync.
		trigger, children string
		hidden            int64
	}{
		"everything":               {[]string{"get things", "get secrets", "get services", "get configmaps"}, "one/a one/b two/a", "services", "one two", 0},
		"no related objects":       {[]string{"get things", "get secrets", "get configmaps"}, "one/a one/b two/a", "hidden", "one two", 0},
		"no former kind":           {[]string{"get things", "get secrets", "get services"}, "one/a one/b two/a", "services", "one and 1 more", 0},
		"one namespace":            {[]string{"get things one", "get secrets one"}, "one/a one/b", "hidden", "one and 1 more", 1},
		"parents without children": {[]string{"get things"}, "", "", "", 3},
		"nothing":                  {nil, "", "", "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := scene(t, &engine{parents: all}, &reviews{allowed: tc.allowed})
			o, err := (&SyncsREST{s}).Get(ctx, "c", &v1alpha1.ControllerSyncOptions{})
			if err != nil {
				t.Fatal(err)
			}
			list, ok := o.(*v1alpha1.ControllerSyncList)
			got := namesOf(list.Items, func(s v1alpha1.ControllerSync) v1alpha1.ParentReference { return s.ParentReference })
			if !ok || got != tc.syncs || list.Hidden != tc.hidden {
				t.Errorf("syncs are %q and %d hidden, want %q and %d", got, list.Hidden, tc.syncs, tc.hidden)
			}
			if len(list.Items) == 0 {
				return
			}
			first := list.Items[0]
			trigger := first.Triggers[0]
			if trigger.Hidden != (tc.trigger == "hidden") || trigger.Hidden != (trigger.Object == nil) || trigger.Hidden != (trigger.Fields == nil) {
				t.Errorf("the trigger is %+v, want %s", trigger, tc.trigger)
			}
			var children []string
			for _, c := range first.Children {
				children = append(children, c.Name)
			}
			if got := joined([]string{strings.Join(children, " ")}, first.MoreChildren); got != tc.children {
				t.Errorf("the children are %q, want %q", got, tc.children)
			}
		})
	}
}

func TestSyncsAreThoseOfTheSelectedParents(t *testing.T) {
	all := []inspection.Parent{thing("one", "a"), thing("one", "b"), thing("two", "a"), thing("three", "a")}
	for what, tc := range map[string]struct {
		options v1alpha1.ControllerSyncOptions
		want    string
		// hidden are among the selected. Of labels, parents that the caller may not get are not counted.
		hidden, remaining int64
	}{
		"a namespace":               {v1alpha1.ControllerSyncOptions{Namespace: "one"}, "one/a one/b", 0, 0},
		"labels":                    {v1alpha1.ControllerSyncOptions{LabelSelector: "name=b"}, "one/b", 0, 0},
		"hidden ones":               {v1alpha1.ControllerSyncOptions{}, "one/a one/b two/a", 1, 0},
		"labels with hidden ones":   {v1alpha1.ControllerSyncOptions{LabelSelector: "name!=b"}, "one/a two/a", 0, 0},
		"labels in a namespace":     {v1alpha1.ControllerSyncOptions{LabelSelector: "name in (a,b)", Namespace: "two"}, "two/a", 0, 0},
		"as many of them as wanted": {v1alpha1.ControllerSyncOptions{LabelSelector: "name=a", Limit: 1}, "one/a", 0, 1},
	} {
		t.Run(what, func(t *testing.T) {
			s, ctx := scene(t, &engine{parents: all}, &reviews{allowed: []string{"get things one", "get secrets one", "get things two", "get secrets two"}})
			o, err := (&SyncsREST{s}).Get(ctx, "c", &tc.options)
			if err != nil {
				t.Fatal(err)
			}
			list := o.(*v1alpha1.ControllerSyncList)
			got := namesOf(list.Items, func(s v1alpha1.ControllerSync) v1alpha1.ParentReference { return s.ParentReference })
			if got != tc.want || list.Hidden != tc.hidden || ptr.Deref(list.RemainingItemCount, 0) != tc.remaining {
				t.Errorf("syncs are of %q, %d are hidden and %v remain, want %q, %d and %d",
					got, list.Hidden, ptr.Deref(list.RemainingItemCount, 0), tc.want, tc.hidden, tc.remaining)
			}
		})
	}
	s, ctx := scene(t, &engine{parents: all}, &reviews{})
	if _, err := (&SyncsREST{s}).Get(ctx, "c", &v1alpha1.ControllerSyncOptions{LabelSelector: "!!"}); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "labelSelector: ") {
		t.Errorf("no selector: %v", err)
	}
}

func TestSyncsAreLimitedAndMayNotBeRecorded(t *testing.T) {
	e := &engine{parents: []inspection.Parent{thing("one", "a"), thing("one", "b")}}
	s, ctx := scene(t, e, &reviews{allowed: []string{"get things", "get secrets"}})
	o, err := (&SyncsREST{s}).Get(ctx, "c", &v1alpha1.ControllerSyncOptions{Limit: 1})
	list, ok := o.(*v1alpha1.ControllerSyncList)
	if err != nil || !ok || len(list.Items) != 1 || list.RemainingItemCount == nil || *list.RemainingItemCount != 1 {
		t.Errorf("the list is %+v, error %v", o, err)
	}
	table, err := (&SyncsREST{s}).ConvertToTable(ctx, o, nil)
	if err != nil || len(table.Rows) != 1 || table.Rows[0].Cells[3] != "RelatedChanged; Timer" || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) {
		t.Errorf("the table is %+v, error %v", table, err)
	}
	e.silent = true
	if _, err := (&SyncsREST{s}).Get(ctx, "c", &v1alpha1.ControllerSyncOptions{}); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "--sync-history-bytes") {
		t.Errorf("without a record: %v", err)
	}
}

// TestWhoMayNotGetAParentIsNotToldWhetherItExists has the same requests about a parent that exists and one that does not.
func TestWhoMayNotGetAParentIsNotToldWhetherItExists(t *testing.T) {
	role := inspection.Parent{ParentReference: v1alpha1.ParentReference{Group: "rbac.authorization.k8s.io", Resource: "roles", Namespace: "one", Name: "a-role"}}
	requests := map[string]func(context.Context, *subresource) error{
		"request": func(ctx context.Context, s *subresource) error {
			_, err := (&RequestREST{s}).Get(ctx, "c", &v1alpha1.HookRequestOptions{Namespace: "one", Name: "it"})
			return err
		},
		"request of a resource": func(ctx context.Context, s *subresource) error {
			_, err := (&RequestREST{s}).Get(ctx, "c", &v1alpha1.HookRequestOptions{Resource: "things.example.com", Namespace: "one", Name: "it"})
			return err
		},
		"rollback": func(ctx context.Context, s *subresource) error {
			asked := &v1alpha1.ControllerRollback{Spec: v1alpha1.ControllerRollbackSpec{Namespace: "one", Name: "it"}}
			_, err := (&RollbackREST{s}).Create(ctx, "c", asked, nil, &metav1.CreateOptions{})
			return err
		},
	}
	for name, allowed := range map[string][]string{
		"no rights":               {"update things", "get secrets"},
		"rights elsewhere":        {"get things two", "get secrets"},
		"rights on other parents": {"get roles", "get secrets"},
	} {
		for request, do := range requests {
			t.Run(name+", "+request, func(t *testing.T) {
				told := func(thing inspection.Parent) error {
					s, ctx := scene(t, &engine{parents: []inspection.Parent{thing, role}}, &reviews{allowed: allowed})
					err := do(ctx, s)
					if !apierrors.IsForbidden(err) {
						t.Errorf("got %v, want 403", err)
					}
					return err
				}
				if diff := cmp.Diff(told(thing("one", "it")), told(thing("one", "another"))); diff != "" {
					t.Errorf("of a parent that exists (-) he is told something else than of one that does not (+):\n%s", diff)
				}
			})
		}
	}
}

// Who may get no parent of a namespace could ask for names and labels one after the other.
func TestCountsTellNothingOfParentsThatTheCallerMayNotGet(t *testing.T) {
	all := []inspection.Parent{thing("one", "a"), thing("one", "b"), thing("two", "a")}
	labeled := &metav1.LabelSelector{MatchLabels: map[string]string{"name": "a"}}
	for name, test := range map[string]struct {
		allowed   []string
		selection *v1alpha1.ParentSelection
		// parents and plans are how many of the parents, and of the plans, are left out and counted; -1 says that the request is forbidden.
		parents, plans int64
	}{
		"all":                              {nil, nil, 3, 3},
		"a namespace":                      {nil, &v1alpha1.ParentSelection{Namespace: "one"}, 2, 2},
		"a resource":                       {nil, &v1alpha1.ParentSelection{Resource: "things.example.com"}, 3, 3},
		"a name":                           {nil, &v1alpha1.ParentSelection{Namespace: "one", Name: "a"}, -1, -1},
		"a name that there is not":         {nil, &v1alpha1.ParentSelection{Namespace: "one", Name: "c"}, -1, -1},
		"labels":                           {nil, &v1alpha1.ParentSelection{LabelSelector: labeled}, 0, 0},
		"no labels":                        {nil, &v1alpha1.ParentSelection{LabelSelector: &metav1.LabelSelector{}}, 3, 3},
		"a name of a parent that he gets":  {[]string{"get things one"}, &v1alpha1.ParentSelection{Name: "a"}, 0, -1},
		"a name where he gets all":         {[]string{"get things one", "get secrets"}, &v1alpha1.ParentSelection{Namespace: "one", Name: "c"}, 0, 0},
		"labels of parents that he gets":   {[]string{"get things"}, &v1alpha1.ParentSelection{LabelSelector: labeled}, 0, 2},
		"all, with parents that he gets":   {[]string{"get things one"}, nil, 1, 3},
		"a name, and he gets the children": {[]string{"get secrets"}, &v1alpha1.ParentSelection{Name: "a"}, -1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := scene(t, &engine{parents: all}, &reviews{allowed: test.allowed})
			expect := func(what string, hidden func() int64, err error, want int64) {
				if forbidden := apierrors.IsForbidden(err); forbidden != (want < 0) || !forbidden && err != nil || err == nil && hidden() != want {
					t.Errorf("%s: error %v; want %d that are left out", what, err, want)
				}
			}
			o, err := (&ResyncREST{s}).Create(ctx, "c", &v1alpha1.ControllerResync{Spec: v1alpha1.ControllerResyncSpec{Parents: test.selection}}, nil, nil)
			expect("a resync", func() int64 { return o.(*v1alpha1.ControllerResync).Status.Hidden }, err, test.parents)
			o, err = (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{Spec: v1alpha1.ControllerPlanSpec{Parents: test.selection}}, nil, nil)
			expect("a plan", func() int64 { return o.(*v1alpha1.ControllerPlan).Status.Hidden }, err, test.plans)
			if test.selection == nil {
				test.selection = &v1alpha1.ParentSelection{}
			}
			if test.selection.LabelSelector == nil && test.selection.Resource == "" {
				o, err = (&SyncsREST{s}).Get(ctx, "c", &v1alpha1.ControllerSyncOptions{Namespace: test.selection.Namespace, Name: test.selection.Name})
				expect("syncs", func() int64 { return o.(*v1alpha1.ControllerSyncList).Hidden }, err, test.plans)
			}
		})
	}
}

// The generic server converts the objects of rows to the version of the API, or takes the metadata of them.
func TestRowsHaveTheObjectsThatTheOptionsAskFor(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	p := thing("one", "a").ParentReference
	for name, tc := range map[string]struct {
		converter rest.TableConvertor
		list      runtime.Object
	}{
		"parents": {&ParentsREST{}, &v1alpha1.ControllerParentList{Items: []v1alpha1.ControllerParent{{ParentReference: p}}}},
		"syncs":   {&SyncsREST{}, &v1alpha1.ControllerSyncList{Items: []v1alpha1.ControllerSync{{ParentReference: p}}}},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := tc.converter.ConvertToTable(t.Context(), tc.list, &metav1.TableOptions{IncludeObject: metav1.IncludeObject})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := scheme.ConvertToVersion(table.Rows[0].Object.Object, v1alpha1.SchemeGroupVersion); err != nil {
				t.Errorf("objects: %v", err)
			}
			table, err = tc.converter.ConvertToTable(t.Context(), tc.list, &metav1.TableOptions{IncludeObject: metav1.IncludeMetadata})
			if err != nil {
				t.Fatal(err)
			}
			if o, err := meta.Accessor(table.Rows[0].Object.Object); err != nil || o.GetNamespace() != "one" || o.GetName() != "a" {
				t.Errorf("metadata: %v, error %v", o, err)
			}
		})
	}
}
