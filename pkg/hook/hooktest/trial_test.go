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

package hooktest_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is a CompositeController of Fleets, which have ConfigMaps.
func fleet() *v1alpha1.CompositeController {
	return &v1alpha1.CompositeController{Spec: v1alpha1.CompositeControllerSpec{
		GenerateSelector: new(true),
		ChildResources: []v1alpha1.CompositeControllerChildResourceRule{
			{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "configmaps"}},
		},
	}}
}

func object(content map[string]any) *hook.Object { return &hook.Object{Object: content} }

// ship wants as many ConfigMaps as the fleet has ships.
func ship(request *hook.CompositeRequest) (*hook.CompositeResponse, error) {
	spec, _ := request.Parent.Object["spec"].(map[string]any)
	response := &hook.CompositeResponse{Status: map[string]any{"observed": len(request.Children.OfType("v1", "ConfigMap"))}}
	ships, _ := spec["ships"].(int64)
	for i := range ships {
		response.Children = append(response.Children, object(map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("%s-%d", request.Parent.GetName(), i)},
			"data": map[string]any{"color": spec["color"]},
		}))
	}
	return response, nil
}

func scuttle(request *hook.CompositeRequest) (*hook.CompositeResponse, error) {
	return &hook.CompositeResponse{Finalized: len(request.Children.OfType("v1", "ConfigMap")) == 0}, nil
}

func trial() hooktest.Trial {
	return hooktest.Trial{
		Composite: fleet(), Sync: hooktest.Composite(ship), Finalize: hooktest.Composite(scuttle),
		Kinds: map[string]string{"configmaps": "ConfigMap"},
		Parent: object(map[string]any{
			"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": map[string]any{"namespace": "sea", "name": "a"},
			"spec": map[string]any{"ships": int64(2), "color": "red"},
		}),
		Edits: map[string]func(*hook.Object){
			"paint": func(o *hook.Object) { o.Object["spec"].(map[string]any)["color"] = "blue" },
			"grow":  func(o *hook.Object) { o.Object["spec"].(map[string]any)["ships"] = int64(3) },
			"lose":  func(o *hook.Object) { o.Object["spec"].(map[string]any)["ships"] = int64(1) },
		},
	}
}

func TestWellBehavedHookPasses(t *testing.T) {
	t.Parallel()
	trial().Run(t, 50)
}

// Hooks in Python read as many bytes as the Content-Length says, and none without one.
func TestRemoteHookIsToldTheLengthOfARequest(t *testing.T) {
	t.Parallel()
	server := hooktest.NewServer(t)
	server.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(body)) {
			http.Error(w, fmt.Sprintf("the length is %d, and that of the body %d, error %v", r.ContentLength, len(body), err), http.StatusLengthRequired)
			return
		}
		_, _ = io.WriteString(w, `{}`)
	}))
	tr := trial()
	tr.Sync = hooktest.Remote(server.URL("/sync"))
	if err := tr.Play(t.Context(), []hooktest.Step{{Do: hooktest.Call}}); err != nil {
		t.Error(err)
	}
	if len(server.Requests("/sync")) == 0 {
		t.Error("the hook was not called")
	}
}

// pythonHook starts a hook in Python with the module for authors of hooks, and returns its address. It ends with the test.
func pythonHook(t *testing.T, program string) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	command := exec.CommandContext(t.Context(), python, "-c", program)
	command.Env = append(os.Environ(), "PYTHONPATH=../../../artifacts/sdk/python", "PYTHONDONTWRITEBYTECODE=1", "HOST=127.0.0.1", "PORT=0")
	command.Stderr = os.Stderr
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // It was killed.
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	port, ok := strings.CutPrefix(strings.TrimSpace(line), "hook listens on port ")
	if err != nil || !ok {
		t.Fatalf("the hook printed %q, error %v", line, err)
	}
	return "http://127.0.0.1:" + port
}

func TestRemoteHookInPythonIsCalled(t *testing.T) {
	t.Parallel()
	tr := trial()
	tr.Finalize = nil
	tr.Sync = hooktest.Remote(pythonHook(t, `
from metacontroller_hook import serve

def sync(request):
    parent = request["parent"]
    name, color = parent["metadata"]["name"], parent["spec"]["color"]
    return {
        "status": {"observed": len(request["children"]["ConfigMap.v1"])},
        "children": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"color": color}}],
    }

serve({"/sync": sync})
`) + "/sync")
	tr.Run(t, 1)
}

func TestProgressIsShownToTheHook(t *testing.T) {
	t.Parallel()
	tr := trial()
	tr.Progress = func(child *hook.Object) { child.Object["status"] = map[string]any{"ready": true} }
	ready := false
	tr.Sync = hooktest.Composite(func(r *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		for _, child := range r.Children.OfType("v1", "ConfigMap") {
			ready = ready || child.Object["status"] != nil
		}
		return ship(r)
	})
	if err := tr.Play(t.Context(), []hooktest.Step{{Do: hooktest.Rest}}); err != nil || !ready {
		t.Errorf("error %v, and the hook has seen a status: %v", err, ready)
	}
}

// What Go writes as an int, a []string or a map[string]string is to the hook, and to the edits, what a cluster makes of it.
func TestTrialTakesLiteralsAsAClusterStoresThem(t *testing.T) {
	t.Parallel()
	const large = 1<<53 + 1 // No float64 is this number.
	tr := trial()
	tr.Parent = object(map[string]any{
		"apiVersion": "example.com/v1", "kind": "Fleet",
		"metadata": map[string]any{"namespace": "sea", "name": "a", "labels": map[string]string{"sea": "north"}},
		"spec":     map[string]any{"ships": 2, "color": "red", "crew": large, "weight": 1.5, "ports": []string{"kiel"}},
	})
	spec := func(o *hook.Object) map[string]any { return o.Object["spec"].(map[string]any) }
	tr.Edits = map[string]func(*hook.Object){
		"moor": func(o *hook.Object) {
			ports, _ := spec(o)["ports"].([]any)
			if crew, ok := spec(o)["crew"].(int64); !ok || crew != large || len(ports) == 0 || o.GetLabels()["sea"] != "north" {
				t.Errorf("the parent is %v", o.Object)
			}
			spec(o)["ports"] = []string{"kiel", fmt.Sprint(len(ports))}
		},
		"grow": func(o *hook.Object) { spec(o)["ships"] = 3 },
		"flag": func(o *hook.Object) { spec(o)["flags"] = map[string]string{"a": "b"} },
	}
	tr.Progress = func(child *hook.Object) {
		child.Object["status"] = map[string]any{"ready": 1, "ports": []string{"kiel"}}
	}
	before := fmt.Sprintf("%#v", tr.Parent.Object)
	tr.Run(t, 20)
	if after := fmt.Sprintf("%#v", tr.Parent.Object); after != before {
		t.Errorf("the trial's parent is %s, and was %s", after, before)
	}
}

// A number of the hook that reads as another type in Go is no change.
func TestTrialComesToRestWithFractionsInChildren(t *testing.T) {
	t.Parallel()
	tr := trial()
	tr.Progress = func(child *hook.Object) { child.Object["status"] = map[string]any{"load": 1.0} }
	tr.Sync = hooktest.Body("application/json",
		`{"children":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"weight":1.0}],"status":{"weight":1.0}}`)
	tr.Finalize = nil
	tr.Run(t, 5)
}

func TestTrialNamesWhatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	spoil := func(o *hook.Object) { o.Object["spec"] = map[string]any{"horn": make(chan int)} }
	edit, rest := []hooktest.Step{{Do: hooktest.Edit, Edit: "blow"}}, []hooktest.Step{{Do: hooktest.Rest}}
	for name, tc := range map[string]struct {
		change func(*hooktest.Trial)
		steps  []hooktest.Step
		want   string
	}{
		"of the parent":   {func(tr *hooktest.Trial) { spoil(tr.Parent) }, rest, "encoding Fleet a: json: unsupported type: chan int"},
		"of an edit":      {func(tr *hooktest.Trial) { tr.Edits["blow"] = spoil }, edit, "edit: blow: encoding Fleet a: json: unsupported type: chan int"},
		"of the progress": {func(tr *hooktest.Trial) { tr.Progress = spoil }, rest, "rest: encoding ConfigMap a-0: json: unsupported type: chan int"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := trial()
			tc.change(&tr)
			if err := tr.Play(t.Context(), tc.steps); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// changed is the hook of ship with something done to its responses.
func changed(change func(*hook.CompositeRequest, *hook.CompositeResponse)) func(*hook.CompositeRequest) (*hook.CompositeResponse, error) {
	return func(r *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		response, err := ship(r)
		change(r, response)
		return response, err
	}
}

// The server applies nothing of a status or of what the cluster says in metadata, and what others add to elements with keys stays.
func TestTrialTakesWhatTheServerTakes(t *testing.T) {
	t.Parallel()
	ports := func(first map[string]any) []any { return []any{first, map[string]any{"port": int64(81)}} }
	for name, tc := range map[string]struct {
		change   func(*hook.CompositeRequest, *hook.CompositeResponse)
		progress func(*hook.Object)
	}{
		"a status of a child": {func(_ *hook.CompositeRequest, r *hook.CompositeResponse) {
			r.Children[0].Object["status"] = map[string]any{"replicas": int64(0)}
		}, func(o *hook.Object) { o.Object["status"] = map[string]any{"replicas": int64(3)} }},
		"a field that is added to an element": {func(_ *hook.CompositeRequest, r *hook.CompositeResponse) {
			r.Children[0].Object["ports"] = ports(map[string]any{"port": int64(80)})
		}, func(o *hook.Object) {
			if _, has := o.Object["ports"]; has {
				o.Object["ports"] = ports(map[string]any{"port": int64(80), "nodePort": int64(30080)})
			}
		}},
		"the observed child": {func(q *hook.CompositeRequest, r *hook.CompositeResponse) {
			if q.Parent.Object["spec"].(map[string]any)["color"] == "blue" {
				return
			}
			for i, child := range r.Children {
				if observed := q.Children.Find("v1", "ConfigMap", "sea", child.GetName()); observed != nil {
					observed.Object["data"] = child.Object["data"]
					r.Children[i] = observed
				}
			}
		}, func(o *hook.Object) {
			if o.GetUID() == "" || len(o.GetOwnerReferences()) != 1 {
				t.Errorf("the child is %v", o.Object)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := trial()
			tr.Sync, tr.Progress = hooktest.Composite(changed(tc.change)), tc.progress
			for seed := uint64(1); seed <= 5; seed++ {
				if err := tr.Play(t.Context(), tr.Generate(seed)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestTrialFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	calls := 0
	for name, tc := range map[string]struct {
		change func(*hook.CompositeRequest, *hook.CompositeResponse)
		want   string
	}{
		"another response to the same request": {func(_ *hook.CompositeRequest, r *hook.CompositeResponse) {
			calls++
			r.Status["calls"] = calls
		}, "different responses"},
		"a status that grows": {func(q *hook.CompositeRequest, r *hook.CompositeResponse) {
			r.Status["seen"] = q.Parent.GetResourceVersion()
		}, "does not come to rest within 20 calls; the last one still changes the parent"},
		"children that come and go": {func(q *hook.CompositeRequest, r *hook.CompositeResponse) {
			if len(q.Children.OfType("v1", "ConfigMap")) > 0 {
				r.Children = nil
			}
		}, "does not come to rest"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := trial()
			tr.Sync = hooktest.Composite(changed(tc.change))
			if err := tr.Play(t.Context(), tr.Generate(1)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// fatal keeps what a test says when it fails, and ends its goroutine.
type fatal struct {
	testing.TB

	text string
}

func (f *fatal) Helper() {}

func (f *fatal) Fatal(args ...any) {
	f.text = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *fatal) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

func TestTrialFindsTheTimeInResponses(t *testing.T) {
	t.Parallel()
	started := sync.OnceValue(time.Now)
	tr := trial()
	tr.Sync = hooktest.Composite(changed(func(_ *hook.CompositeRequest, r *hook.CompositeResponse) {
		// As a time in seconds does, and without a second that begins between two calls.
		r.Status["late"] = time.Since(started()) > time.Second
	}))
	f := &fatal{TB: t}
	var ended sync.WaitGroup
	ended.Go(func() { tr.Run(f, 1) })
	ended.Wait()
	if !strings.Contains(f.text, "different responses") {
		t.Errorf("it says %q", f.text)
	}
}

func TestTrialFindsWrongResponses(t *testing.T) {
	t.Parallel()
	rest, remove := []hooktest.Step{{Do: hooktest.Rest}}, []hooktest.Step{{Do: hooktest.Delete}}
	for name, tc := range map[string]struct {
		change func(*hooktest.Trial)
		steps  []hooktest.Step
		want   string
	}{
		"an unknown field": {func(tr *hooktest.Trial) { tr.Sync = hooktest.Body("", `{"childs":[]}`) }, rest, "childs"},
		"no JSON":          {func(tr *hooktest.Trial) { tr.Sync = hooktest.Body("", `ok`) }, rest, "the response of the sync hook"},
		"a panic": {func(tr *hooktest.Trial) {
			tr.Sync = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oh") })
		}, rest, "the hook panics: oh"},
		"an error":        {func(tr *hooktest.Trial) { tr.Sync = hooktest.Status(500, "oh") }, rest, "responds with 500: oh"},
		"never finalized": {func(tr *hooktest.Trial) { tr.Finalize = hooktest.Body("", `{}`) }, remove, "does not say that it is finalized"},
		"a selector of nothing": {func(tr *hooktest.Trial) {
			tr.Composite.Spec.GenerateSelector = nil
			tr.Parent.Object["spec"] = map[string]any{"selector": map[string]any{}}
		}, rest, "has no spec.selector that selects something"},
		"a deletion that is not allowed": {func(tr *hooktest.Trial) {
			tr.Composite, tr.Decorator = nil, &v1alpha1.DecoratorController{Spec: v1alpha1.DecoratorControllerSpec{
				Resources: []v1alpha1.DecoratorControllerResourceRule{
					{ResourceRule: v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "fleets"}},
					{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}, AllowDelete: new(true)},
				},
			}}
			tr.Sync = hooktest.Body("", `{"delete":true}`)
		}, rest, "sets allowDelete"},
		"no selector":     {func(tr *hooktest.Trial) { tr.Composite.Spec.GenerateSelector = nil }, rest, "has no spec.selector"},
		"no hook":         {func(tr *hooktest.Trial) { tr.Sync = nil }, rest, "needs a parent, a sync hook"},
		"a kind missing":  {func(tr *hooktest.Trial) { tr.Kinds = nil }, rest, "no kind for configmaps"},
		"an unknown edit": {func(*hooktest.Trial) {}, []hooktest.Step{{Do: hooktest.Edit, Edit: "sink"}}, "no such edit"},
		"an unknown step": {func(*hooktest.Trial) {}, []hooktest.Step{{Do: "sink"}}, "no such step"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := trial()
			tc.change(&tr)
			if err := tr.Play(t.Context(), tc.steps); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTrialOfDecorator(t *testing.T) {
	t.Parallel()
	tr := trial()
	tr.Composite, tr.Finalize = nil, nil
	tr.Decorator = &v1alpha1.DecoratorController{Spec: v1alpha1.DecoratorControllerSpec{Attachments: []v1alpha1.DecoratorControllerAttachmentRule{
		{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "configmaps"}},
	}}}
	label := "on"
	tr.Sync = hooktest.Decorator(func(r *hook.DecoratorRequest) (*hook.DecoratorResponse, error) {
		response := &hook.DecoratorResponse{Labels: map[string]*string{"lamp": &label, "off": nil}, Status: map[string]any{"lamps": 1}}
		response.Attachments = append(response.Attachments, object(map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": r.Object.GetName() + "-lamp"},
		}))
		return response, nil
	})
	tr.Run(t, 20)
}

func TestHistoriesRepeat(t *testing.T) {
	t.Parallel()
	a, b := fmt.Sprint(trial().Generate(7)), fmt.Sprint(trial().Generate(7))
	if a != b || a == fmt.Sprint(trial().Generate(8)) {
		t.Errorf("seed 7 makes %s and %s", a, b)
	}
}

// A history repeats, also where children of two groups have the same kind and name, and whichever child its steps name.
func TestStepsNameTheSameChildEachTime(t *testing.T) {
	t.Parallel()
	tr := hooktest.Trial{
		Composite: &v1alpha1.CompositeController{Spec: v1alpha1.CompositeControllerSpec{
			GenerateSelector: new(true),
			ChildResources: []v1alpha1.CompositeControllerChildResourceRule{
				{ResourceRule: v1alpha1.ResourceRule{APIVersion: "a/v1", Resource: "things"}},
				{ResourceRule: v1alpha1.ResourceRule{APIVersion: "b/v1", Resource: "things"}},
			},
		}},
		Kinds:  map[string]string{"things": "Thing"},
		Parent: object(map[string]any{"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": map[string]any{"name": "a"}}),
	}
	for range 20 {
		for child, kept := range map[int]string{0: "b/v1", -1: "a/v1", 3: "a/v1", -2: "b/v1"} {
			calls := 0
			tr.Sync = hooktest.Composite(func(request *hook.CompositeRequest) (*hook.CompositeResponse, error) {
				if calls++; calls > 2 && len(request.Children.OfType(kept, "Thing")) != 1 {
					return nil, fmt.Errorf("there is no Thing of %s", kept)
				}
				response := &hook.CompositeResponse{}
				for _, apiVersion := range []string{"a/v1", "b/v1"} {
					response.Children = append(response.Children, object(map[string]any{
						"apiVersion": apiVersion, "kind": "Thing", "metadata": map[string]any{"name": "one"},
					}))
				}
				return response, nil
			})
			steps := []hooktest.Step{{Do: hooktest.Call}, {Do: hooktest.DeleteChild, Child: child}, {Do: hooktest.Call}}
			if err := tr.Play(t.Context(), steps); err != nil {
				t.Fatalf("child %d: %v", child, err)
			}
		}
	}
}

// post sends body to url and returns status and body of the response.
func post(t *testing.T, client *http.Client, url, body string) (status int, text string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

func TestTypedHandlers(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/composite", hooktest.Composite(func(r *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Status: map[string]any{"name": r.Parent.GetName(), "pods": len(r.Children.OfType("v1", "Pod"))}}, nil
	}))
	server.Handle("/decorator", hooktest.Decorator(func(r *hook.DecoratorRequest) (*hook.DecoratorResponse, error) {
		name := r.Object.GetName()
		return &hook.DecoratorResponse{Labels: map[string]*string{"name": &name}}, nil
	}))
	server.Handle("/customize", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{}, nil
	}))
	server.Handle("/failing", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return nil, errors.New("no idea")
	}))
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}`
	for path, tc := range map[string]struct {
		body, want string
		status     int
	}{
		"/composite": {`{"parent":` + pod + `,"children":{"Pod.v1":{"web":` + pod + `}}}`, `{"status":{"name":"web","pods":1},"children":null}`, 200},
		"/decorator": {`{"object":` + pod + `}`, `{"labels":{"name":"web"},"status":null,"attachments":null}`, 200},
		"/customize": {`{"parent":` + pod + `}`, `{"relatedResources":null}`, 200},
		"/failing":   {`{}`, "no idea\n", 500},
		"/unknown":   {`{}`, "404 page not found\n", 404},
	} {
		status, got, err := post(t, http.DefaultClient, server.URL(path), tc.body)
		if err != nil || status != tc.status || got != tc.want {
			t.Errorf("%s: got %d %q, %v, want %d %q", path, status, got, err, tc.status, tc.want)
		}
	}
	if status, _, err := post(t, http.DefaultClient, server.URL("/composite"), "nonsense"); err != nil || status != http.StatusBadRequest {
		t.Errorf("nonsense: got %d, %v, want 400", status, err)
	}
}

func TestRequestsAreRecordedInOrder(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Sequence(hooktest.JSON(1), hooktest.JSON(2)))
	var responses, bodies []string
	for _, body := range []string{"a", "b", "c"} {
		_, response, err := post(t, http.DefaultClient, server.URL("/sync"), body)
		if err != nil {
			t.Fatal(err)
		}
		responses = append(responses, response)
	}
	for _, r := range server.Await(t.Context(), "/sync", 3) {
		bodies = append(bodies, string(r.Body))
	}
	if diff := cmp.Diff([]string{"1", "2", "2"}, responses); diff != "" {
		t.Errorf("responses of the sequence (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, bodies); diff != "" {
		t.Errorf("recorded bodies (-want +got):\n%s", diff)
	}
	if n := len(server.Requests("/other")); n != 0 {
		t.Errorf("%d requests of another path", n)
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	server := hooktest.NewServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := server.Await(ctx, "/sync", 1); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestCertificates(t *testing.T) {
	trusting := func(s *hooktest.Server, certificates ...tls.Certificate) *http.Client {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(s.CABundle())) {
			t.Fatal("the CA bundle holds no certificate")
		}
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: certificates}}}
	}
	good, expired := hooktest.NewServer(t, hooktest.WithTLS()), hooktest.NewServer(t, hooktest.WithExpiredCertificate())
	other, mutual := hooktest.NewServer(t, hooktest.WithCertificateFor("hook.shop")), hooktest.NewServer(t, hooktest.WithClientCertificates())
	pair, err := tls.X509KeyPair(mutual.ClientCertificate())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		server *hooktest.Server
		client *http.Client
		ok     bool
	}{
		"Trusted":                  {good, trusting(good), true},
		"NotTrusted":               {good, trusting(expired), false},
		"Expired":                  {expired, trusting(expired), false},
		"OtherHost":                {other, trusting(other), false},
		"WithClientCertificate":    {mutual, trusting(mutual, pair), true},
		"WithoutClientCertificate": {mutual, trusting(mutual), false},
	} {
		if _, _, err := post(t, tc.client, tc.server.URL("/"), ""); (err == nil) != tc.ok {
			t.Errorf("%s: got %v, want success: %v", name, err, tc.ok)
		}
	}
}

func TestHugeResponsesAreValid(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Huge(1<<20))
	_, response, err := post(t, http.DefaultClient, server.URL("/sync"), "")
	if err != nil || len(response) < 1<<20 || !json.Valid([]byte(response)) {
		t.Errorf("got %d bytes, valid: %v, %v", len(response), json.Valid([]byte(response)), err)
	}
}

// firstUID is that of the first object in a trial, which is the parent.
const firstUID = "00000000-0000-4000-8000-000000000001"

// declared are the kinds of children, to a trial and to the server.
func declared() ([]v1alpha1.ResourceRule, children.Rules) {
	scaler := schema.GroupVersion{Group: "autoscaling", Version: "v1"}
	rules := []v1alpha1.ResourceRule{
		{APIVersion: "v1", Resource: "configmaps"},
		{APIVersion: "v1", Resource: "namespaces"},
		{APIVersion: "autoscaling/v1", Resource: "horizontalpodautoscalers"},
	}
	return rules, children.NewRules([]children.Rule{
		{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespaced: true},
		{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}},
		{Kind: scaler.WithKind("HorizontalPodAutoscaler"), Resource: scaler.WithResource("horizontalpodautoscalers"), Namespaced: true},
	})
}

// trialOf is a trial of a controller of these kinds, whose hook returns some children.
func trialOf(decorator bool, namespace, selector, list string) hooktest.Trial {
	rules, _ := declared()
	tr := hooktest.Trial{
		Kinds: map[string]string{
			"configmaps": "ConfigMap", "namespaces": "Namespace", "horizontalpodautoscalers": "HorizontalPodAutoscaler",
		},
		Namespaced: map[string]bool{"configmaps": true, "namespaces": false, "horizontalpodautoscalers": true},
		Parent:     object(map[string]any{"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": map[string]any{"namespace": namespace, "name": "a"}}),
	}
	if decorator {
		tr.Sync = hooktest.Body("application/json", `{"attachments":[`+list+`]}`)
		tr.Decorator = &v1alpha1.DecoratorController{}
		for _, rule := range rules {
			tr.Decorator.Spec.Attachments = append(tr.Decorator.Spec.Attachments, v1alpha1.DecoratorControllerAttachmentRule{ResourceRule: rule})
		}
		return tr
	}
	tr.Sync = hooktest.Body("application/json", `{"children":[`+list+`]}`)
	tr.Composite = &v1alpha1.CompositeController{Spec: v1alpha1.CompositeControllerSpec{GenerateSelector: new(selector == "")}}
	for _, rule := range rules {
		tr.Composite.Spec.ChildResources = append(tr.Composite.Spec.ChildResources, v1alpha1.CompositeControllerChildResourceRule{ResourceRule: rule})
	}
	if selector != "" {
		tr.Parent.Object["spec"] = map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": selector}}}
	}
	return tr
}

// scopeOf is what the server knows of the same parent.
func scopeOf(decorator bool, namespace, selector string) children.Scope {
	scope := children.Scope{Namespace: namespace}
	switch {
	case decorator:
	case selector != "":
		scope.Selector = labels.SelectorFromSet(labels.Set{"app": selector})
	default:
		scope.Labels = map[string]string{"controller-uid": firstUID}
		scope.Selector = labels.SelectorFromSet(scope.Labels)
	}
	return scope
}

// TestTrialAcceptsWhatTheServerAccepts holds what a trial says of children against what the server does.
func TestTrialAcceptsWhatTheServerAccepts(t *testing.T) {
	t.Parallel()
	configMap := func(metadata string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + metadata + `}}`
	}
	for name, tc := range map[string]struct {
		decorator           bool
		namespace, selector string
		list                string
		// want is in the error, empty if there is none.
		want string
	}{
		"a child":                              {false, "sea", "", configMap(`"name":"a"`), ""},
		"a label that is a number":             {false, "sea", "", configMap(`"name":"a","labels":{"replicas":3}`), `children[0]: invalid labels on desired child ConfigMap sea/a: the value of "replicas" is not a string but 3`},
		"a label that is null":                 {false, "sea", "", configMap(`"name":"a","labels":{"a":null}`), `the value of "a" is not a string but null`},
		"labels that are a list":               {false, "sea", "", configMap(`"name":"a","labels":[]`), "metadata.labels is not an object"},
		"a label of an attachment is a number": {true, "sea", "", configMap(`"name":"a","labels":{"replicas":3}`), `attachments[0]: invalid labels on desired child ConfigMap sea/a: the value of "replicas" is not a string but 3`},
		"a label of an attachment is null":     {true, "sea", "", configMap(`"name":"a","labels":{"a":null}`), ""},
		"an annotation that is a number":       {true, "sea", "", configMap(`"name":"a","annotations":{"a":1}`), `invalid annotations on desired child ConfigMap sea/a: the value of "a" is not a string but 1`},
		"an annotation that is null":           {false, "sea", "", configMap(`"name":"a","annotations":{"a":null}`), ""},
		"the label of another parent":          {false, "sea", "", configMap(`"name":"a","labels":{"controller-uid":"other"}`), "don't match parent selector controller-uid=" + firstUID + "; the hook returned the label controller-uid=other"},
		"its label":                            {false, "sea", "", configMap(`"name":"a","labels":{"controller-uid":"` + firstUID + `"}`), ""},
		"labels of the selector":               {false, "sea", "x", configMap(`"name":"a","labels":{"app":"x","b":"c"}`), ""},
		"no labels of the selector":            {false, "sea", "x", configMap(`"name":"a"`), "don't match parent selector app=x"},
		"a name with a slash":                  {false, "sea", "", configMap(`"name":"a/b"`), `has the metadata.name "a/b", which may not contain '/'`},
		"no name":                              {false, "sea", "", configMap(`"generateName":"a"`), "has generateName but no name"},
		"no metadata":                          {false, "sea", "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":1}`, "has a metadata that is not an object"},
		"no apiVersion":                        {false, "sea", "", `{"kind":"ConfigMap","metadata":{"name":"a"}}`, "has no apiVersion"},
		"no version":                           {false, "sea", "", `{"apiVersion":"autoscaling/","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}}`, `has the apiVersion "autoscaling/", whose version is none`},
		"another version of the kind":          {false, "sea", "", `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}}`, ""},
		"a kind of another group":              {false, "sea", "", `{"apiVersion":"example.com/v1","kind":"ConfigMap","metadata":{"name":"a"}}`, "which is not declared; add it to spec.childResources"},
		"the same in two versions": {
			false, "sea", "", `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}},{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}}`,
			"is there twice",
		},
		"a cluster-scoped child of a namespaced parent":     {false, "sea", "", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, "is cluster-scoped"},
		"a cluster-scoped child of a cluster-scoped parent": {false, "", "", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, ""},
		"a child without namespace of such a parent":        {false, "", "", configMap(`"name":"a"`), "has no metadata.namespace; a child of a cluster-scoped parent must name one"},
		"a child in a namespace of such a parent":           {false, "", "", configMap(`"name":"a","namespace":"sea"`), ""},
		"a child in another namespace":                      {false, "sea", "", configMap(`"name":"a","namespace":"land"`), "is not in its parent's namespace sea"},
		"a namespace that is a number":                      {false, "sea", "", configMap(`"name":"a","namespace":1`), "has a metadata.namespace that is not a string"},
		"a namespace with a slash":                          {false, "", "", configMap(`"name":"a","namespace":"a/b"`), `has the metadata.namespace "a/b"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := trialOf(tc.decorator, tc.namespace, tc.selector, tc.list).Play(t.Context(), []hooktest.Step{{Do: hooktest.Call}})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the trial says %v, want %q", err, tc.want)
			}
			var list []map[string]any
			if err := json.Unmarshal([]byte("["+tc.list+"]"), &list); err != nil {
				t.Fatal(err)
			}
			_, rules := declared()
			if _, _, err := children.Validate(scopeOf(tc.decorator, tc.namespace, tc.selector), rules, list); (err == nil) != (tc.want == "") {
				t.Errorf("the server says %v, want an error: %v", err, tc.want != "")
			}
		})
	}
}

// Of kinds of which a trial does not know whether they are namespaced, it accepts what the server accepts of either.
func TestATrialThatDoesNotKnowWhichKindsAreNamespaced(t *testing.T) {
	t.Parallel()
	configMap := func(metadata string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + metadata + `}}`
	}
	for name, tc := range map[string]struct{ namespace, list, want string }{
		"a child without namespace of a namespaced parent":       {"sea", configMap(`"name":"a"`), ""},
		"a child in another namespace than its parent":           {"sea", configMap(`"name":"a","namespace":"land"`), "ConfigMap land/a is"},
		"a child without namespace of a cluster-scoped parent":   {"", configMap(`"name":"a"`), ""},
		"children in namespaces of a cluster-scoped parent":      {"", configMap(`"name":"a","namespace":"sea"`) + "," + configMap(`"name":"a","namespace":"land"`), ""},
		"children of a cluster-scoped parent, some in namespace": {"", configMap(`"name":"a","namespace":"sea"`) + "," + configMap(`"name":"b"`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := trialOf(false, tc.namespace, "", tc.list)
			tr.Namespaced = nil
			err := tr.Play(t.Context(), []hooktest.Step{{Do: hooktest.Rest}})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the trial says %v, want %q", err, tc.want)
			}
		})
	}
}

// A child is shown under the key of its rule, in whichever version the hook returns it.
func TestAChildInAnotherVersionThanThatOfItsRuleIsShown(t *testing.T) {
	t.Parallel()
	tr := trialOf(false, "sea", "", "")
	seen := 0
	tr.Sync = hooktest.Composite(func(r *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		seen = len(r.Children.OfType("autoscaling/v1", "HorizontalPodAutoscaler"))
		return &hook.CompositeResponse{Children: []*hook.Object{object(map[string]any{
			"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": map[string]any{"name": "a"},
		})}}, nil
	})
	if err := tr.Play(t.Context(), []hooktest.Step{{Do: hooktest.Rest}}); err != nil || seen != 1 {
		t.Errorf("error %v, and the hook has seen %d children, want 1", err, seen)
	}
}
