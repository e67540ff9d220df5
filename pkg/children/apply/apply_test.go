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

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// api responses writes and keeps count of those that are under way. What it does to objects is proven elsewhere, on a real
// control plane.
type api struct {
	// crowd is how many requests have to come together before the first is returned. Default 1.
	crowd int

	mu       sync.Mutex
	arrived  *sync.Cond
	methods  []string
	underWay int
	most     int
	released bool
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.methods = append(a.methods, r.Method)
	a.underWay++
	a.most = max(a.most, a.underWay)
	if a.underWay >= a.crowd {
		a.released = true
		a.arrived.Broadcast()
	}
	for !a.released {
		a.arrived.Wait()
	}
	a.underWay--
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodDelete {
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		return
	}
	_, _ = io.WriteString(w, strings.Replace(string(body), `"metadata":{`, `"metadata":{"uid":"u","resourceVersion":"1",`, 1))
}

func serve(t *testing.T, crowd int, options apply.Options) (*api, *apply.Applier) {
	t.Helper()
	a := &api{crowd: crowd}
	a.arrived = sync.NewCond(&a.mu)
	return a, against(t, a, options)
}

// against returns an applier that writes to handler.
func against(t *testing.T, handler http.Handler, options apply.Options) *apply.Applier {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	var err error
	if options.Client, err = client.New(&rest.Config{Host: server.URL, QPS: -1}); err != nil {
		t.Fatal(err)
	}
	return apply.New(options)
}

// input is a parent with children to delete and children to create.
func input(t *testing.T, parent string, deletes, creates int) plan.Input {
	t.Helper()
	rules := children.NewRules([]children.Rule{{
		Kind:       schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Resource:   schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Namespaced: true,
	}})
	in := plan.Input{
		Parent: types.UID(parent), ParentName: "Parent p", Owner: map[string]any{"uid": parent}, Rules: rules, Now: time.Now(),
	}
	for i := range deletes {
		o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"old-%d","namespace":"ns","uid":"u"}}`, i),
			object.ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		in.Observed = append(in.Observed, o)
	}
	list := make([]map[string]any, creates)
	for i := range list {
		list[i] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprint("new-", i)}}
	}
	var err error
	if in.Desired, _, err = children.Validate(children.Scope{Namespace: "ns"}, rules, list); err != nil {
		t.Fatal(err)
	}
	return in
}

// carryOut gathers what a plan needs, makes it and applies it.
func carryOut(ctx context.Context, t *testing.T, a *apply.Applier, in plan.Input) ([]plan.Outcome, error) {
	t.Helper()
	in.Schemas = map[schema.GroupVersionKind]merge.Schema{}
	for _, kind := range plan.Missing(in).Schemas {
		in.Schemas[kind] = nil
	}
	in.Trials = a.Try(ctx, in)
	p, errPlan := plan.Make(in)
	outcomes, err := a.Apply(ctx, p)
	return outcomes, errors.Join(errPlan, err)
}

func TestDeletesGoFirst(t *testing.T) {
	server, applier := serve(t, 1, apply.Options{})
	outcomes, err := carryOut(t.Context(), t, applier, input(t, "p", 4, 4))
	if err != nil || len(outcomes) != 8 {
		t.Fatalf("%d outcomes, error %v", len(outcomes), err)
	}
	want := slices.Concat(slices.Repeat([]string{http.MethodDelete}, 4), slices.Repeat([]string{http.MethodPost}, 4))
	if !slices.Equal(server.methods, want) {
		t.Errorf("requests %v", server.methods)
	}
	for _, o := range outcomes {
		if !o.Done || (o.Written != nil) != (o.Action == plan.Create) {
			t.Errorf("outcome %+v", o)
		}
	}
}

func TestWritesOfOneParentAreBounded(t *testing.T) {
	server, applier := serve(t, 3, apply.Options{WritesPerParent: 3})
	if _, err := carryOut(t.Context(), t, applier, input(t, "p", 0, 12)); err != nil {
		t.Fatal(err)
	}
	if server.most != 3 {
		t.Errorf("%d writes at a time", server.most)
	}
}

func TestWritesOfAllParentsAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		behind func() bool
		want   int
	}{
		"Always":    {"Nobody says whether caches are behind.", nil, 8},
		"KeepingUp": {"The caches follow.", func() bool { return false }, 8},
		"Behind":    {"A quarter is left for an API server whose watches are late.", func() bool { return true }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			server, applier := serve(t, tc.want, apply.Options{Writes: 8, WritesPerParent: 3, Behind: tc.behind})
			var parents sync.WaitGroup
			for i := range 4 {
				in := input(t, fmt.Sprint("p", i), 0, 6)
				of := applier.For(fmt.Sprint("controller", i%2), false)
				parents.Go(func() {
					if _, err := carryOut(t.Context(), t, of, in); err != nil {
						t.Error(err)
					}
				})
			}
			parents.Wait()
			if server.most != tc.want {
				t.Errorf("%d writes at a time, want %d: %s", server.most, tc.want, tc.reason)
			}
		})
	}
}

func TestAWaitForASlotEndsWithTheContext(t *testing.T) {
	for name, options := range map[string]apply.Options{
		"All": {Writes: 1},
		"Few": {Writes: 2, Behind: func() bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			taken := make(chan struct{})
			// The first write holds the only slot until both give up.
			applier := against(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				// The server sees that the client went only once it has read the request.
				_, _ = io.Copy(io.Discard, r.Body)
				close(taken)
				<-r.Context().Done()
			}), options)
			var parents sync.WaitGroup
			for i := range 2 {
				in := input(t, fmt.Sprint("p", i), 0, 1)
				parents.Go(func() {
					if _, err := carryOut(ctx, t, applier, in); !errors.Is(err, context.Canceled) {
						t.Errorf("error %v", err)
					}
				})
			}
			<-taken
			cancel()
			parents.Wait()
		})
	}
}

func TestNothingIsWrittenAfterTheContextEnded(t *testing.T) {
	server, applier := serve(t, 1, apply.Options{Writes: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	outcomes, err := carryOut(ctx, t, applier, input(t, "p", 1, 2))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	for _, o := range outcomes {
		if o.Done {
			t.Errorf("outcome %+v", o)
		}
	}
	if len(server.methods) > 0 {
		t.Errorf("requests %v", server.methods)
	}
}

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAConflictSaysWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		owner            string
		itself, attaches bool
		want             string
	}{
		"an object of nobody":                       {"", false, false, "let the parent adopt it by its labels"},
		"an object of nobody, for a decorator":      {"", false, true, "not controlled by Thing ns/a; delete or rename one of them"},
		"the object of another parent":              {"Thing ns/b", false, false, "by Thing ns/b; delete or rename one of them"},
		"the object of a former parent of the name": {"Thing ns/a", false, false, "the garbage collector deletes it then, and it is created again"},
		"the parent itself":                         {"", true, false, "return its status as that of the response"},
		"the target itself":                         {"", true, true, "return labels, annotations or status of the response in place of it"},
		"the target itself, which is owned":         {"Thing ns/b", true, true, "return labels, annotations or status of the response in place of it"},
	} {
		t.Run(name, func(t *testing.T) {
			err := &apply.ConflictError{
				Key: children.Key{Kind: "Pod", Namespace: "ns", Name: "x"}, Parent: "Thing ns/a", Owner: tc.owner, Itself: tc.itself, Attaches: tc.attaches,
			}
			if text := err.Error(); !strings.HasPrefix(text, "Pod ns/x ") || !strings.HasSuffix(text, tc.want) {
				t.Errorf("it says %q, want %q at its end", text, tc.want)
			}
		})
	}
}

// TestTheOwnerOfAConflictIsNamedAsTheParent has an object in a namespace whose owner is of a kind with or without namespaces.
func TestTheOwnerOfAConflictIsNamedAsTheParent(t *testing.T) {
	for name, tc := range map[string]struct{ owner, parent, want string }{
		"a former one of a kind without namespaces": {"a", "Thing a", "Thing a"},
		"another one of a kind without namespaces":  {"b", "Thing a", "Thing ns/b"}, // Whether its kind has namespaces is not known.
		"a former one of a kind with namespaces":    {"a", "Thing ns/a", "Thing ns/a"},
		"another one of a kind with namespaces":     {"b", "Thing ns/a", "Thing ns/b"},
	} {
		t.Run(name, func(t *testing.T) {
			existing, err := object.Parse([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"ns","uid":"x","resourceVersion":"1","ownerReferences":[`+
				`{"apiVersion":"example.com/v1","kind":"Thing","name":"`+tc.owner+`","uid":"former","controller":true}]}}`), object.ParseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			conflict := apply.New(apply.Options{}).For("c", false).With(nil).Conflict(children.Key{Kind: "ConfigMap", Namespace: "ns", Name: "x"}, "present", tc.parent, existing)
			if conflict.Owner != tc.want {
				t.Errorf("the owner is %q, want %q", conflict.Owner, tc.want)
			}
		})
	}
}

func TestTurnsOfAllControllersAreSpreadOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := apply.New(apply.Options{})
		began := time.Now()
		var mu sync.Mutex
		turns := map[time.Time]int{}
		var running sync.WaitGroup
		for _, controller := range []string{"a", "b"} {
			own := shared.For(controller, false).With(nil)
			running.Go(func() {
				for range 100 {
					if err := own.AwaitTurn(t.Context()); err != nil {
						t.Error(err)
					}
					mu.Lock()
					turns[time.Now()]++
					mu.Unlock()
				}
			})
		}
		running.Wait()
		if took := time.Since(began); took < 10*time.Second || took > 15*time.Second || len(turns) != 200 {
			t.Errorf("200 turns at %d times within %v", len(turns), took)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if shared.AwaitTurn(ended) == nil {
			t.Error("a turn of somebody who does not wait any more")
		}
	})
}

// counted returns the requests that write children, by verb and outcome.
func counted(t *testing.T) map[string]float64 {
	t.Helper()
	metrics.Register()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "metacontroller_child_writes_total" {
			continue
		}
		for _, m := range f.GetMetric() { // Labels are sorted by name.
			found[m.GetLabel()[1].GetValue()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return found
}

func TestEveryRequestIsCountedByVerbAndOutcome(t *testing.T) {
	ok := response{http.StatusOK, ours}
	written := response{http.StatusOK, strings.Replace(ours, `"resourceVersion":"9"`, `"resourceVersion":"10"`, 1)}
	exists := failure(http.StatusConflict, "AlreadyExists", "a")
	conflict := failure(http.StatusConflict, "Conflict", "a")
	gone := failure(http.StatusNotFound, "NotFound", "a")
	notServed := failure(http.StatusNotFound, "NotFound", "")
	noDryRun := failure(http.StatusBadRequest, "BadRequest", "a")
	for name, tc := range map[string]struct {
		action    plan.Action
		responses responses
		want      map[string]float64
	}{
		"Created":      {plan.Create, responses{http.MethodPost: ok}, map[string]float64{"create written": 1}},
		"Exists":       {plan.Create, responses{http.MethodPost: exists, http.MethodGet: ok}, map[string]float64{"create conflict": 1}},
		"Tried twice":  {plan.Create, responses{http.MethodPost: exists, http.MethodGet: gone}, map[string]float64{"create conflict": 2}},
		"No namespace": {plan.Create, responses{http.MethodPost: gone}, map[string]float64{"create rejected": 1}},
		"No response":  {plan.Create, responses{http.MethodPost: {http.StatusCreated, `[]`}}, map[string]float64{"create error": 1}},
		"Updated":      {plan.Update, responses{http.MethodPut: written}, map[string]float64{"update written": 1}},
		"Unchanged":    {plan.Update, responses{http.MethodPut: ok}, map[string]float64{"update unchanged": 1}},
		"Changed":      {plan.Update, responses{http.MethodPut: conflict}, map[string]float64{"update conflict": 1}},
		"Gone":         {plan.Update, responses{http.MethodPut: gone}, map[string]float64{"update conflict": 1}},
		"Not served":   {plan.Update, responses{http.MethodPut: notServed}, map[string]float64{"update rejected": 1}},
		"Deleted":      {plan.Delete, responses{http.MethodDelete: success}, map[string]float64{"delete written": 1}},
		"Replaced": {
			plan.Recreate,
			responses{http.MethodPut: noDryRun, http.MethodPost: {http.StatusOK, triedChild(`{"k":"v"}`)}, http.MethodGet: {http.StatusOK, ours}, http.MethodDelete: success},
			map[string]float64{"trial rejected": 1, "trial unchanged": 1, "delete written": 1},
		},
		"Tried": {plan.Recreate, responses{http.MethodPut: written}, map[string]float64{"trial unchanged": 1, "update written": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, applier := resist(t, tc.responses, apply.Options{})
			before := counted(t)
			_, _ = carryOut(t.Context(), t, applier, one(t, tc.action))
			if diff := cmp.Diff(tc.want, since(t, before)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPatchesOfOwnersAreCounted(t *testing.T) {
	_, applier := resist(t, responses{http.MethodPatch: {http.StatusOK, ours}}, apply.Options{})
	before := counted(t)
	target := client.Target{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "ns", Name: "a"}
	if _, err := applier.Patch(t.Context(), target, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"update written": 1}, since(t, before)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// since returns the requests that were counted after others.
func since(t *testing.T, before map[string]float64) map[string]float64 {
	t.Helper()
	more := map[string]float64{}
	for series, n := range counted(t) {
		if n > before[series] {
			more[series] = n - before[series]
		}
	}
	return more
}
