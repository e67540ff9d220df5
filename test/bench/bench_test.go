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

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/barewrites"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/subject"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// TestMain runs the hook, or what stands in for Metacontroller, where the bench starts this program again for it.
func TestMain(m *testing.M) {
	//nolint:forbidigo // No test runs there, and those processes end when the bench ends them.
	ctx := context.Background()
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "hook":
		err = hookserver.Run(ctx, os.Stdout)
	case slices.Contains(os.Args, standInFlag):
		err = standIn(ctx, os.Args[1:])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestSmoke runs every workload at a small size. Times do not count here, but what was called, read and written does.
func TestSmoke(t *testing.T) {
	s := size{20, 2}
	results := map[string]report.Result{}
	o := options{
		server: server.Binary(t), root: cluster.Root(),
		plan: plan{
			sizes: []size{s}, settle: 250 * time.Millisecond, steady: time.Second, trials: 10, fresh: 10, quick: true,
			rolling: s, removed: s, slow: size{20, 2}, delay: 50 * time.Millisecond, customized: size{20, 1}, related: 10, changes: 5,
			fleet: s, controllers: 5, crowd: s, pods: 40, matching: 10, timeout: 5 * time.Minute,
		},
		keep: func(r report.Result) error {
			results[r.Workload] = r
			return nil
		},
	}
	l := &lane{options: o, start: newBench, alone: true}
	defer l.end()
	if err := inTurns(t.Context(), 1, o.plan.steps(), []*lane{l}); err != nil {
		t.Fatal(err)
	}
	for _, e := range expectations {
		r, ok := results[e.workload]
		if !ok {
			t.Errorf("%s: there is no result", e.workload)
			continue
		}
		if figure := e.figure(r); figure < e.least || figure > e.most {
			t.Errorf("%s: %s is %v, want %v to %v: %s\n%+v", e.workload, e.name, figure, e.least, e.most, e.reason, r)
		}
	}
	if t.Failed() {
		return
	}
	for _, w := range limited {
		expectTimes(t, results[w])
	}
}

// limited are the workloads that are measured beside bare writes.
var limited = []string{
	"create", "update", "drift", "decorator", "decorator-change", "customize", "customize-change", "5-controllers", "rolling", "delete", "finalize",
}

// expectTimes checks that the times of a workload's objects and of its limit's were measured.
func expectTimes(t *testing.T, r report.Result) {
	t.Helper()
	if len(r.Limits) != 2 || r.Limit <= 0 || r.Ratio <= 0 {
		t.Errorf("%s: the limit is %v of %v, the ratio %v, want the mean of two that were measured", r.Workload, r.Limit, r.Limits, r.Ratio)
	}
	for name, pair := range map[string][2]float64{
		"time": {r.P50, r.P99}, "limit's time": {r.LimitP50, r.LimitP99},
		"time from the start": {r.StartP50, r.StartP99}, "limit's time from the start": {r.LimitStartP50, r.LimitStartP99},
	} {
		if pair[0] <= 0 || pair[1] < pair[0] {
			t.Errorf("%s: the %s has a p50 of %v and a p99 of %v ms", r.Workload, name, pair[0], pair[1])
		}
	}
}

type expectation struct {
	workload, name string
	figure         func(report.Result) float64
	least, most    float64
	reason         string
}

var (
	calls = func(r report.Result) float64 { return r.CallsPerParent }
	reads = func(r report.Result) float64 {
		return float64(r.Reads("things", "pods") + r.Requests["LIST configmaps"])
	}
	gets    = func(r report.Result) float64 { return float64(r.Requests["GET configmaps"]) }
	writes  = func(r report.Result) float64 { return float64(r.Writes()) }
	unasked = func(r report.Result) float64 { return float64(*r.UnaskedWrites) }
)

// watches is how often the server may renew watches in a workload. Those count as GETs on its side, so that as many of the
// garbage collector's reads cannot be told from its own. It is far less than one for each parent.
const watches = 6

func requests(keys ...string) func(report.Result) float64 {
	return func(r report.Result) float64 {
		n := 0.0
		for key, count := range r.Requests {
			if slices.Contains(keys, key) {
				n += float64(count)
			}
		}
		return n
	}
}

// expectations are what a run must show whatever the machine.
var expectations = []expectation{
	{"create", "calls per parent", calls, 1, 3, "once for the parent, and at most twice more for its children and its status"},
	{"create", "reads", reads, 0, watches, "the cache has everything"},
	{"create", "reads of children", gets, 0, watches, "the cache has everything"},
	{"create", "children created", requests("POST configmaps"), 40, 40, "each child is created once"},
	{"create", "status writes", requests("PATCH things/status"), 20, 40, "one before the children are seen, one after"},
	{"create", "writes", writes, 60, 80, "there is nothing else to write"},
	{"steady", "calls per parent", calls, 0, 0, "nothing changes"},
	{"steady", "writes", unasked, 0, 0, "nothing changes"},
	{"steady", "reads", reads, 0, watches, "nothing changes"},
	{"update", "calls per parent", calls, 1, 4, "children change one after the other"},
	{"update", "children updated", requests("PUT configmaps", "PATCH configmaps"), 40, 40, "each child is updated once"},
	{"update", "reads", reads, 0, watches, "the cache has everything"},
	{"drift", "children created", requests("POST configmaps"), 20, 20, "one child of each parent was deleted"},
	{"drift", "reads", reads, 0, watches, "the cache has everything"},
	{"resync", "calls per parent", calls, 1, 1, "every parent is synced once"},
	{"resync", "writes", unasked, 0, 0, "all are settled"},
	{"resync", "reads", reads, 0, watches + 2, "informers start with one list each, and have everything then"},
	{"single", "children repaired", requests("PUT configmaps", "PATCH configmaps"), 10, 10, "one repair for each trial"},
	{"single", "calls per trial", calls, 1, 3, "only the child's own parent is synced"},
	{"restart", "unasked writes", unasked, 0, 0, "what was settled before stays as it is"},
	{"restart", "lists", requests("LIST things", "LIST configmaps"), 2, 2, "informers start with one list each"},
	{"slow-hook", "calls per parent", calls, 1, 3, "waiting for the hook is no reason to call it again"},
	{"slow-hook", "children created", requests("POST configmaps"), 40, 40, "each child is created once"},
	{"decorator", "calls per matching pod", calls, 1, 3, "pods that do not match are nothing to the hook"},
	{"decorator", "attachments created", requests("POST configmaps"), 10, 10, "one for each matching pod"},
	{"decorator-change", "calls per matching pod", calls, 1, 3, "pods that do not match are nothing to the hook"},
	{"decorator-change", "attachments updated", requests("PUT configmaps", "PATCH configmaps"), 10, 10, "one for each matching pod"},
	{"customize", "calls per parent", calls, 2, 4, "one customize call, and as many sync calls as without"},
	{"customize-change", "calls per affected parent", calls, 1, 3, "parents that do not select the changed object are not called"},
	{"customize-change", "children updated", requests("PUT configmaps", "PATCH configmaps"), 10, 10, "only those of the selecting parents"},
	{"5-controllers", "calls per parent", calls, 1, 3, "each parent belongs to one controller"},
	{"5-controllers", "children created", requests("POST configmaps"), 40, 40, "each child is created once"},
	{"neighbour", "children created", requests("POST configmaps"), 40, 40, "each child of the other controller is created once"},
	{"neighbour", "changes meanwhile", func(r report.Result) float64 { return r.P99 }, 0.001, 60_000, "there is one at least"},
	{"neighbour", "changes alone", func(r report.Result) float64 { return r.WriteP99 }, 0.001, 60_000, "they were measured before"},
	{"rolling", "children updated", requests("PUT configmaps", "PATCH configmaps"), 40, 40, "each child is updated once"},
	{"delete", "writes by others than the bench", requests("DELETE configmaps"), 40, 40, "the garbage collector deletes each child once"},
	{"finalize", "children deleted", requests("DELETE configmaps"), 40, 40, "each child is deleted once"},
	{"finalize", "finalizers removed", requests("PATCH things", "PUT things"), 20, 20, "one write ends each parent"},
}

func TestParseSizes(t *testing.T) {
	got, err := parseSizes("300x3,100x50")
	if want := []size{{300, 3}, {100, 50}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"300", "x3", "0x3", "3x0", "3x3,", "axb"} {
		if got, err := parseSizes(bad); err == nil {
			t.Errorf("%q: got %v and no error", bad, got)
		}
	}
}

func TestParseWorkloads(t *testing.T) {
	if got, err := parseWorkloads("create,single"); err != nil || len(got) != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parseWorkloads("crate"); err == nil {
		t.Errorf("got %v and no error for a workload that is none", got)
	}
}

func TestSelected(t *testing.T) {
	for _, c := range []struct {
		workloads []string
		name      string
		want      bool
	}{
		{nil, "create", true},
		{[]string{"steady"}, "create", false},
		{[]string{"decorator"}, "decorator-change", true},
		{[]string{"controllers"}, "50-controllers", true},
		{[]string{"delete"}, "finalize", false},
	} {
		if got := (plan{workloads: c.workloads}).selected(c.name); got != c.want {
			t.Errorf("%s of %v: got %t, want %t", c.name, c.workloads, got, c.want)
		}
	}
}

func TestReadsAreAttributedUpToTheServersOwnCount(t *testing.T) {
	requests := map[string]int64{"GET things": 40, "LIST configmaps": 1, "PUT configmaps": 9}
	attribute(requests, 3)
	if requests["GET things"] != 2 || requests["LIST configmaps"] != 1 || requests["PUT configmaps"] != 9 {
		t.Errorf("got %v, want the list, 2 of the other reads, since the server made 3 in all, and all writes", requests)
	}
}

func TestWaitsTellOnlyOfWhatIsExpected(t *testing.T) {
	var w waits
	w.expect(1)
	w.note("p0", "2", 3)
	w.is("p0", "1", 3)
	w.is("p0", "2", 2)
	w.is("p1", "2", 3)
	if got := w.times(); len(got) != 0 {
		t.Fatalf("got %v before p0 has become what is wanted", got)
	}
	w.is("p0", "2", 3)
	w.is("p0", "2", 3)
	if err := w.await(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := w.times(); len(got) != 1 {
		t.Errorf("got %v, want one time", got)
	}
}

func TestStepsAreTheSelectedOnes(t *testing.T) {
	names := func(p plan) (names []string) {
		for _, s := range p.steps() {
			names = append(names, s.name)
		}
		return names
	}
	p := plan{sizes: []size{{300, 3}, {100, 50}}, workloads: []string{"create", "finalize", "rolling"}}
	if got, want := names(p), []string{"300×3", "100×50", "rolling", "finalize"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	p.quick = true
	if got, want := names(p), []string{"rolling", "300×3", "100×50", "finalize"}; !slices.Equal(got, want) {
		t.Errorf("quick: got %v, want %v: the garbage collector gets to know the kind meanwhile", got, want)
	}
	if got := names(plan{sizes: p.sizes, workloads: []string{"delete"}}); !slices.Equal(got, []string{"delete"}) {
		t.Errorf("got %v, want no size without a workload that is measured on it", got)
	}
}

func TestTurnsAlternate(t *testing.T) {
	var got, ended []string
	turn := func(lane int, s step, last bool) error {
		got = append(got, fmt.Sprint(s.name, lane))
		if last {
			ended = append(ended, fmt.Sprint(s.name, lane))
		}
		return nil
	}
	if err := alternate(2, []step{{name: "a"}, {name: "b"}}, 2, turn); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a0", "a1", "b1", "b0", "a1", "a0", "b0", "b1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: each lane with each step in each run, and not always the same first", got, want)
	}
	if want := []string{"b0", "b1"}; !slices.Equal(ended, want) {
		t.Errorf("the last ones are %v, want %v", ended, want)
	}
}

func TestAPeerThatFailsIsNotTheEnd(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		peer *subject.PeerOptions
		want int
	}{
		{"Server", nil, 1},
		{"Peer", &subject.PeerOptions{Binary: "metacontroller"}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			turns := 0
			steps := slices.Repeat([]step{{"a", func(*bench, context.Context) error { turns++; return broken }}}, 3)
			l := &lane{options: options{peer: c.peer, plan: plan{quick: true}}, alone: true, start: func(context.Context, options) (*bench, error) {
				return &bench{folder: t.TempDir()}, nil
			}}
			if err := inTurns(t.Context(), 1, steps, []*lane{l}); !errors.Is(err, broken) {
				t.Errorf("got %v, want it to tell of the failure", err)
			}
			if turns != c.want {
				t.Errorf("got %d turns, want %d", turns, c.want)
			}
		})
	}
}

func TestBareWritesAreLeftOutWhereTold(t *testing.T) {
	for without, want := range map[bool]int{false: 2, true: 0} {
		var bare int
		var kept []report.Result
		b := &bench{options: options{plan: plan{withoutLimit: without}, keep: func(r report.Result) error {
			kept = append(kept, r)
			return nil
		}}}
		err := b.beside(t.Context(), func(context.Context) (limits, error) {
			bare++
			return limits{workCreate: report.TimesOf(2, nil, nil)}, nil
		}, func(context.Context) ([]report.Result, error) {
			return []report.Result{{Workload: workCreate, Seconds: 3}}, nil
		})
		if err != nil || bare != want || len(kept) != 1 || kept[0].Seconds != 3 || (kept[0].Limit == 0) != without {
			t.Errorf("without limit %t: got %d times bare writes and %+v, %v; want %d times, and the result", without, bare, kept, err, want)
		}
	}
}

// standInFlag has this program stand in for Metacontroller.
const standInFlag = "--stand-in"

// peerDefinition is what stands in for Metacontroller's CustomResourceDefinitions.
const peerDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: compositecontrollers.metacontroller.k8s.io
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: metacontroller.k8s.io
  names: {kind: CompositeController, plural: compositecontrollers, singular: compositecontroller}
  scope: Cluster
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestPeer runs two workloads with a program that stands in for Metacontroller.
func TestPeer(t *testing.T) {
	definitions := filepath.Join(t.TempDir(), "definitions.yaml")
	if err := os.WriteFile(definitions, []byte(peerDefinition), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]report.Result{}
	l := &lane{start: newBench, options: options{
		peer: &subject.PeerOptions{Binary: self, Definitions: definitions, Arguments: []string{standInFlag}}, root: cluster.Root(),
		plan: plan{
			sizes: []size{{6, 2}}, workloads: []string{workCreate, workUpdate}, settle: 250 * time.Millisecond, timeout: 2 * time.Minute, quick: true,
		},
		keep: func(r report.Result) error {
			results[r.Workload] = r
			return nil
		},
	}}
	defer l.end()
	if err := inTurns(t.Context(), 1, l.plan.steps(), []*lane{l}); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{workCreate, workUpdate} {
		r := results[w]
		expectTimes(t, r)
		if want := filepath.Base(self) + " " + standInFlag; r.Measured != want {
			t.Errorf("%s: measured is %q, want %q", w, r.Measured, want)
		}
		if r.CallsPerParent != 2 || r.StatusWrites() != 6 || r.RSSAfter <= 0 {
			t.Errorf("%s: got %+v, want two calls and one status write for each parent, and the memory of the process", w, r)
		}
		if r.Mallocs != 0 || len(r.OwnRequests) != 0 {
			t.Errorf("%s: got %+v, want nothing of what its metrics do not tell", w, r)
		}
	}
}

// standIn does of CompositeControllers what the test needs: it creates or updates the children that the hook wants, and writes the status.
func standIn(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("stand-in", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "")
	metrics := flags.String("metrics-address", "", "")
	flags.String("health-probe-bind-address", "", "")
	flags.Bool(standInFlag[2:], false, "")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	writes, err := barewrites.New(config)
	if err != nil {
		return err
	}
	informers, err := cache.New(cache.Options{Config: config})
	if err != nil {
		return err
	}
	go informers.Run(ctx)
	parents := make(chan *object.Object, 100)
	informers.Acquire(cache.Query{Resource: parentResource}).Subscribe(func(e cache.Event) {
		if e.New != nil {
			parents <- e.New
		}
	})
	go func() {
		for parent := range parents {
			if err := standInSync(ctx, writes, parent); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	server := &http.Server{Addr: *metrics, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	return server.ListenAndServe()
}

func standInSync(ctx context.Context, writes *barewrites.Client, parent *object.Object) error {
	observedGeneration, _ := parent.Field("status", "observedGeneration")
	controller, _ := parent.Label("bench")
	if controller == "" || string(observedGeneration) == strconv.FormatInt(parent.Generation(), 10) {
		return nil
	}
	stored, err := writes.Get(ctx, client.Target{Resource: compositeResource, Name: controller})
	if err != nil {
		return err
	}
	hook, _ := stored.Field("spec", "hooks", "sync", "webhook", "url")
	var url string
	if err := json.Unmarshal(hook, &url); err != nil {
		return err
	}
	wanted, err := callHook(ctx, url, parent, nil)
	if err != nil {
		return err
	}
	observed := map[string]json.RawMessage{}
	for _, child := range wanted.Children {
		var c struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(child, &c); err != nil {
			return err
		}
		observed[c.Metadata.Name] = child
		_, err := writes.Create(ctx, childTarget(parent.Namespace(), ""), child)
		if apierrors.IsAlreadyExists(err) {
			_, err = writes.Update(ctx, childTarget(parent.Namespace(), c.Metadata.Name), child)
		}
		if err != nil {
			return err
		}
	}
	if wanted, err = callHook(ctx, url, parent, observed); err != nil {
		return err
	}
	wanted.Status["observedGeneration"] = parent.Generation()
	patch, err := json.Marshal(map[string]any{"status": wanted.Status})
	if err != nil {
		return err
	}
	t := target(parent.Namespace(), parent.Name())
	t.Subresource = "status"
	_, err = writes.Patch(ctx, t, types.MergePatchType, patch)
	return err
}

// answer is what the hook wants.
type answer struct {
	Status   map[string]any    `json:"status"`
	Children []json.RawMessage `json:"children"`
}

func callHook(ctx context.Context, url string, parent *object.Object, observed map[string]json.RawMessage) (answer, error) {
	body, err := json.Marshal(map[string]any{"parent": json.RawMessage(parent.JSON()), "children": map[string]any{"ConfigMap.v1": observed}})
	if err != nil {
		return answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	reply, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	var a answer
	err = json.Unmarshal(reply, &a)
	return a, err
}
