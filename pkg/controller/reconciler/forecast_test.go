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
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	clientrest "k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/inspect"
)

// methodsOfForecast are how the kinds of children are updated.
var methodsOfForecast = map[string]v1alpha1.ChildUpdateMethod{
	"Widget": v1alpha1.ChildUpdateInPlace, "Gadget": v1alpha1.ChildUpdateRecreate, "Gizmo": v1alpha1.ChildUpdateOnDelete,
}

// statesOfForecast are the children that parents have, and those that the hook wants: as KIND/NAME=SIZE, with /SIZE if another size was applied
// last. The hook returns !CODE instead.
var statesOfForecast = map[string]struct{ observed, desired string }{
	"same":        {"Widget/a=1 Gadget/b=1 Gizmo/c=1", "Widget/a=1 Gadget/b=1 Gizmo/c=1"},
	"fresh":       {"", "Widget/a=1 Gadget/b=1"},
	"childless":   {"", ""},
	"changed":     {"Widget/a=1", "Widget/a=2"},
	"drifted":     {"Widget/a=9/1", "Widget/a=1"},
	"recreated":   {"Gadget/a=1", "Gadget/a=2"},
	"left":        {"Gizmo/a=1", "Gizmo/a=2"},
	"more":        {"Widget/a=1", "Widget/a=1 Widget/b=1"},
	"fewer":       {"Widget/a=1 Gadget/b=1", "Widget/a=1"},
	"unwanted":    {"Widget/a=1 Gizmo/b=1", ""},
	"down":        {"Widget/a=1", "!503"},
	"invalid":     {"Widget/a=1", "!200"},
	"down-before": {"", "!503"},
}

const parentsOfForecast = 300

// forecaster is a controller that does not sync, of which plans and warnings are asked for.
type forecaster struct {
	*testing.T

	c *reconciler.Controller
	// calls counts those of the hook.
	calls atomic.Int64
	plans rest.NamedCreater
	warn  func(ctx context.Context, o, was runtime.Object, write controller.Write)
}

// Controller implements inspection.Engine.
func (f *forecaster) Controller(string, string, types.UID) (inspection.Controller, error) {
	return f.c, nil
}

// Candidate implements inspection.Engine.
func (f *forecaster) Candidate(context.Context, runtime.Object) (inspection.Controller, func(), error) {
	return f.c, func() {}, nil
}

// serveForecast serves the hook: the state is the first part of the name of the parent.
func (f *forecaster) serveForecast(w http.ResponseWriter, r *http.Request) {
	f.calls.Add(1)
	var asked struct {
		Parent struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"parent"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := asked.Parent.Metadata.Name
	desired := statesOfForecast[name[:strings.LastIndex(name, ".")]].desired
	if code, fails := strings.CutPrefix(desired, "!"); fails {
		status, _ := strconv.Atoi(code)
		w.WriteHeader(status)
		fmt.Fprint(w, "this is no response")
		return
	}
	list := []map[string]any{}
	for each := range strings.FieldsSeq(desired) {
		_, content, _ := childOfForecast(f, name, each)
		list = append(list, content)
	}
	if err := json.NewEncoder(w).Encode(map[string]any{"children": list}); err != nil {
		f.Error(err)
	}
}

// childOfForecast reads a child as in statesOfForecast: its kind, what the hook wants, and the object that there is.
func childOfForecast(t testing.TB, parent, text string) (kind string, content map[string]any, observed *object.Object) {
	t.Helper()
	kind, text, _ = strings.Cut(text, "/")
	name, sizes, _ := strings.Cut(text, "=")
	size, last, differs := strings.Cut(sizes, "/")
	if !differs {
		last = size
	}
	with := func(size string) map[string]any {
		return map[string]any{
			"apiVersion": "example.com/v1", "kind": kind, "metadata": map[string]any{"name": parent + "-" + name}, "spec": map[string]any{"size": size},
		}
	}
	applied, err := merge.Encode(with(last))
	if err != nil {
		t.Fatal(err)
	}
	observed = parse(t, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":%q,"spec":{"size":%q},"metadata":{"name":"%s-%s","uid":"%[3]s-%[4]s","resourceVersion":"1",
		"annotations":{"metacontroller.k8s.io/last-applied-configuration":%[5]q},
		"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Thing","name":%[3]q,"uid":"uid-%[3]s","controller":true}]}}`, kind, size, parent, name, applied))
	return kind, with(size), observed
}

// newForecaster returns the controller of as many parents in all states, in turns.
func newForecaster(t *testing.T) *forecaster {
	t.Helper()
	f := &forecaster{T: t}
	hook := httptest.NewServer(http.HandlerFunc(f.serveForecast))
	t.Cleanup(hook.Close)
	s := newSceneWith(t, &clientrest.Config{Host: "http://cluster", Transport: transport(echoed)})
	informers, observed := map[string]*cache.Informer{}, map[string][]any{}
	var rules []children.Rule
	for kind, method := range methodsOfForecast {
		resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: strings.ToLower(kind) + "s"}
		informers[kind] = s.shared.Cluster.Cache.Acquire(cache.Query{Resource: resource})
		rules = append(rules, children.Rule{Kind: resource.GroupVersion().WithKind(kind), Resource: resource, Method: method})
	}
	states := slices.Sorted(maps.Keys(statesOfForecast))
	var parents []*object.Object
	for i := range parentsOfForecast {
		state := states[i%len(states)]
		name := fmt.Sprintf("%s.%d", state, i)
		parents = append(parents, thing(t, name, 1, "", ""))
		for each := range strings.FieldsSeq(statesOfForecast[state].observed) {
			kind, _, o := childOfForecast(t, name, each)
			observed[kind] = append(observed[kind], o)
		}
	}
	s.exist(parents...)
	for kind, informer := range informers {
		if err := informer.Replace(observed[kind], "1"); err != nil {
			t.Fatal(err)
		}
	}
	f.c = s.start(&kind{
		observe: func(sync *reconciler.Sync) error {
			for _, informer := range informers {
				sync.Observed = append(sync.Observed, informer.ControlledBy(sync.Parent.UID())...)
			}
			return nil
		},
		decide: func(sync *reconciler.Sync) error { return sync.Decide(t.Context()) },
		apply:  func(ctx context.Context, sync *reconciler.Sync) error { return sync.ReconcileChildren(ctx, "children") },
	}, func(c *reconciler.Config) {
		c.Children = rules
		c.Definition = reconciler.OfComposite(&v1alpha1.CompositeController{
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Spec: v1alpha1.CompositeControllerSpec{Paused: new(true), Hooks: &v1alpha1.CompositeControllerHooks{
				Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new(hook.URL + "/sync")}},
			}},
		})
	})
	link := &inspection.Link{}
	t.Cleanup(link.Connect(f))
	inspector := inspect.New(inspect.Config{Engine: link})
	scheme := runtime.NewScheme()
	install.Install(scheme)
	f.warn = inspector.WarnOfPlans(scheme, v1alpha1.KindComposite, "compositecontrollers")
	get := func(_ context.Context, name string) (metav1.Object, error) {
		return &metav1.ObjectMeta{Name: name}, nil
	}
	f.plans = inspector.Subresources(v1alpha1.KindComposite, "compositecontrollers", get)["compositecontrollers/plan"].(rest.NamedCreater)
	return f
}

// echoed is an API server that stores what it is sent.
func echoed(r *http.Request) (int, string) {
	if r.Body == nil {
		return http.StatusNotFound, "{}"
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return http.StatusInternalServerError, "{}"
	}
	return http.StatusOK, string(body)
}

type warned []string

// AddWarning implements warning.Recorder.
func (w *warned) AddWarning(_, text string) { *w = append(*w, text) }

func (f *forecaster) administrator() context.Context {
	return genericapirequest.WithUser(f.Context(), &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}})
}

// warning writes the controller, and returns what is warned of and how long that took.
func (f *forecaster) warning(dryRun bool) (string, time.Duration) {
	var got warned
	began := time.Now()
	f.warn(warning.WithWarningRecorder(f.administrator(), &got), &metacontroller.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, nil,
		controller.Write{DryRun: dryRun})
	return strings.Join(got, "\n"), time.Since(began)
}

// planned is the summary of so many parents by the subresource plan.
func (f *forecaster) planned(limit int64) v1alpha1.PlanSummary {
	f.Helper()
	o, err := f.plans.Create(f.administrator(), "c", &v1alpha1.ControllerPlan{Spec: v1alpha1.ControllerPlanSpec{Limit: limit}}, nil, &metav1.CreateOptions{})
	if err != nil {
		f.Fatalf("planning: %v", err)
	}
	return o.(*v1alpha1.ControllerPlan).Status.Summary
}

var (
	partOfForecast = regexp.MustCompile(`(\d+) (?:child |children |)(created|updated|recreated|deleted|adopted|released|refused)`)
	wholeForecast  = regexp.MustCompile(`^(\d+) of (\d+) parents? would change`)
	failedForecast = regexp.MustCompile(`; (\d+) syncs? would fail, the first with: `)
	leftOfForecast = regexp.MustCompile(`; (\d+) parents? (?:was|were) not looked at`)
)

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// summaryOf reads the numbers of a warning, and how many parents were not looked at.
func summaryOf(t *testing.T, text string) (s v1alpha1.PlanSummary, left int64) {
	t.Helper()
	if m := wholeForecast.FindStringSubmatch(text); m != nil {
		s.Changing, s.Parents = number(t, m[1]), number(t, m[2])
	}
	if m := failedForecast.FindStringSubmatch(text); m != nil {
		s.Failing = number(t, m[1])
	}
	if m := leftOfForecast.FindStringSubmatch(text); m != nil {
		left = number(t, m[1])
	}
	for _, m := range partOfForecast.FindAllStringSubmatch(text, -1) {
		*map[string]*int64{
			"created": &s.Create, "updated": &s.Update, "recreated": &s.Recreate, "deleted": &s.Delete, "adopted": &s.Adopt, "released": &s.Release, "refused": &s.Refuse,
		}[m[2]] = number(t, m[1])
	}
	return s, left
}

// TestAWarningIsTheSummaryOfThePlan compares them for 300 parents in every state, with a hook that is served. What a machine does not look at in time
// is what the warning says.
func TestAWarningIsTheSummaryOfThePlan(t *testing.T) {
	f := newForecaster(t)
	var got v1alpha1.PlanSummary
	var left int64
	var took time.Duration
	var text string
	f.eventuallyLooked(func() bool {
		text, took = f.warning(true)
		got, left = summaryOf(t, text)
		return got.Parents > 0
	})
	t.Logf("in %s: %s", took, text)
	if got.Parents+left != parentsOfForecast {
		t.Errorf("%d parents were looked at, and %d were not, of %d", got.Parents, left, parentsOfForecast)
	}
	began := time.Now()
	want := f.planned(got.Parents)
	t.Logf("the plan of these took %s", time.Since(began))
	want.Leave = 0 // Nobody is warned of that.
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the warning is not the summary of the plan (-plan +warning):\n%s\n%s", diff, text)
	}
	all := f.planned(parentsOfForecast)
	for what, n := range map[string]int64{
		"created": all.Create, "updated": all.Update, "recreated": all.Recreate, "deleted": all.Delete, "left": all.Leave, "failing": all.Failing,
	} {
		if n == 0 {
			t.Errorf("nothing is %s: %+v", what, all)
		}
	}
}

func TestAWriteIsWarnedOfItsDeletionsByCallsThatMayFindSome(t *testing.T) {
	f := newForecaster(t)
	all := f.planned(parentsOfForecast)
	withChildren := 0
	for i, states := 0, slices.Sorted(maps.Keys(statesOfForecast)); i < parentsOfForecast; i++ {
		if statesOfForecast[states[i%len(states)]].observed != "" {
			withChildren++
		}
	}
	var got v1alpha1.PlanSummary
	var left int64
	f.eventuallyLooked(func() bool {
		before := f.calls.Load()
		text, took := f.warning(false)
		if got, left = summaryOf(t, text); got.Delete == 0 {
			return false
		}
		t.Logf("in %s: %s", took, text)
		if calls := f.calls.Load() - before; left == 0 && calls != int64(withChildren) {
			t.Errorf("the hook was called %d times, and %d parents have children", calls, withChildren)
		}
		return true
	})
	if want := (v1alpha1.PlanSummary{Delete: all.Delete, Recreate: all.Recreate}); left == 0 && got != want {
		t.Errorf("the warning is of %+v, want %+v", got, want)
	}
}

// eventuallyLooked asks again while the machine has too little time for a single parent.
func (f *forecaster) eventuallyLooked(looked func() bool) {
	f.Helper()
	err := wait.PollUntilContextTimeout(f.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return looked(), nil })
	if err != nil {
		f.Fatalf("waiting for a warning: %v", err)
	}
}
