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

package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/pkg/migration"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// The engines that run one after the other.
const (
	onPeer        = "Metacontroller"
	onDefinitions = "the program on definitions"
	onServer      = "the server"
)

const (
	peerVariable = "METACONTROLLER_PEER"
	peerImage    = "example.com/metacontroller:peer"
	image        = "example.com/metacontroller-apiserver:swap"
	account      = "system:serviceaccount:metacontroller:metacontroller"
	// by is the annotation and the field of a status that has the engine which wrote them.
	by = "by"
	// mayGo is the annotation that a finalize hook waits for.
	mayGo = "example.com/may-go"
)

var (
	parts = schema.GroupVersionResource{Group: things.Group, Version: "v1", Resource: "parts"}
	pods  = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// controllers are a rolling update in place with a finalize hook, one that recreates and whose hook is called all the time, and a decorator. The host of
// their hooks is looked up nowhere: each engine has a proxy of its own, which is the hook server and so knows who calls.
const controllers = `
apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata: {name: rolling}
spec:
  generateSelector: true
  parentResource: {apiVersion: migration.example.com/v1, resource: things, labelSelector: {matchLabels: {app: rolling}}}
  childResources:
  - apiVersion: migration.example.com/v1
    resource: parts
    updateStrategy: {method: RollingInPlace, statusChecks: {conditions: [{type: Ready, status: "True"}]}}
  hooks:
    sync: {webhook: {url: "http://hooks.example.com/rolling"}}
    finalize: {webhook: {url: "http://hooks.example.com/rolling"}}
---
apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata: {name: recreating}
spec:
  generateSelector: true
  parentResource: {apiVersion: migration.example.com/v1, resource: things, labelSelector: {matchLabels: {app: recreating}}}
  childResources:
  - apiVersion: migration.example.com/v1
    resource: parts
    updateStrategy: {method: RollingRecreate, statusChecks: {conditions: [{type: Ready, status: "True"}]}}
  hooks:
    sync: {webhook: {url: "http://hooks.example.com/recreating"}}
---
apiVersion: metacontroller.k8s.io/v1alpha1
kind: DecoratorController
metadata: {name: notes}
spec:
  resources: [{apiVersion: migration.example.com/v1, resource: things, labelSelector: {matchLabels: {app: rolling}}}]
  attachments: [{apiVersion: v1, resource: configmaps, updateStrategy: {method: InPlace}}]
  hooks:
    sync: {webhook: {url: "http://hooks.example.com/notes"}}
    finalize: {webhook: {url: "http://hooks.example.com/notes"}}
`

// call is one of a hook.
type call struct {
	engine, controller, parent string
	finalizing                 bool
	began, ended               time.Time
}

// hooks note who calls them, and when.
type hooks struct {
	mu    sync.Mutex
	calls []*call
	// overlapping are calls of two engines for the same parent at the same time.
	overlapping []string
}

func (h *hooks) begin(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.began = time.Now()
	for _, other := range h.calls {
		if other.ended.IsZero() && other.engine != c.engine && other.controller == c.controller && other.parent == c.parent {
			h.overlapping = append(h.overlapping, fmt.Sprintf("%s calls %s for %s while %s does", c.engine, c.controller, c.parent, other.engine))
		}
	}
	h.calls = append(h.calls, c)
}

func (h *hooks) end(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.ended = time.Now()
}

// since returns the calls after the first so many.
func (h *hooks) since(n int) []call {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := make([]call, 0, len(h.calls)-n)
	for _, c := range h.calls[n:] {
		calls = append(calls, *c)
	}
	return calls
}

func (h *hooks) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

// finalized reports whether an engine has called the finalize hooks of both controllers for a parent, after the first so many calls.
func (h *hooks) finalized(since int, engine, parent string) bool {
	controllers := map[string]bool{}
	for _, c := range h.since(since) {
		if c.engine == engine && c.parent == parent && c.finalizing {
			controllers[c.controller] = true
		}
	}
	return len(controllers) == 2
}

// parent is what hooks look at.
type parent struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Version string `json:"version"`
	} `json:"spec"`
}

// request is that of either kind of controllers.
type request struct {
	Controller  parent                                `json:"controller"`
	Parent      *parent                               `json:"parent"`
	Object      *parent                               `json:"object"`
	Children    map[string]map[string]json.RawMessage `json:"children"`
	Attachments map[string]map[string]json.RawMessage `json:"attachments"`
	Finalizing  bool                                  `json:"finalizing"`
}

// of is the hook server of an engine.
func (h *hooks) of(engine string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q request
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		about := cmp.Or(q.Parent, q.Object)
		c := &call{engine: engine, controller: q.Controller.Metadata.Name, parent: about.Metadata.Name, finalizing: q.Finalizing}
		h.begin(c)
		defer h.end(c)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(respond(engine, about, &q)) // The engine sees what it lacks.
	})
}

func respond(engine string, p *parent, q *request) map[string]any {
	response, name, observed := map[string]any{}, p.Metadata.Name, 0
	for _, objects := range []map[string]map[string]json.RawMessage{q.Children, q.Attachments} {
		for _, group := range objects {
			observed += len(group)
		}
	}
	_, leaving := p.Metadata.Annotations[mayGo]
	wanted := []any{}
	switch {
	case q.Finalizing && leaving:
		response["finalized"] = observed == 0
	case q.Object != nil:
		wanted = append(wanted, map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name + "-note"}, "data": map[string]any{"version": p.Spec.Version},
		})
	default:
		for _, part := range []string{"a", "b", "c"} {
			wanted = append(wanted, map[string]any{
				"apiVersion": parts.GroupVersion().String(), "kind": "Part", "metadata": map[string]any{"name": name + "-" + part},
				"spec": map[string]any{"version": p.Spec.Version},
			})
		}
	}
	if q.Object != nil {
		response["attachments"], response["annotations"] = wanted, map[string]any{by: engine}
		return response
	}
	response["children"], response["status"] = wanted, map[string]any{by: engine}
	if q.Controller.Metadata.Name == "recreating" {
		response["resyncAfterSeconds"] = 0.05
	}
	return response
}

// swap is a scene in which engines run.
type swap struct {
	*scene
	*cluster.Objects

	hooks *hooks
	// proxies are the variables of the environment that lead an engine to its hook server.
	proxies     map[string]string
	kubeconfig  string
	definitions string
	// program is the engine on definitions. Only the kubelet uses it.
	program *server.Server
}

func newSwap(t *testing.T) *swap {
	t.Helper()
	const file = "../definitions/testdata/metacontroller.yaml"
	definitions, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &swap{hooks: &hooks{}, proxies: map[string]string{}, definitions: string(definitions)}
	for _, engine := range []string{onPeer, onDefinitions, onServer} {
		proxy := httptest.NewServer(s.hooks.of(engine))
		t.Cleanup(proxy.Close)
		s.proxies[engine] = "HTTP_PROXY=" + proxy.URL
	}
	s.scene = newScene(t, file, "metacontroller", s.proxies[onServer])
	s.Objects = s.Clients.Objects(t, s.namespace, cluster.Limit)
	s.plane.Define(t, cluster.CustomResource{Resource: parts, Kind: "Part"})
	s.kubeconfig = s.plane.KubeconfigAs(t, account)
	return s
}

// install starts Metacontroller's StatefulSet, and what stands for its kubelet. It returns the engine that runs.
func (s *swap) install() string {
	s.Helper()
	engine, first := onDefinitions, image
	if os.Getenv(peerVariable) != "" {
		engine, first = onPeer, peerImage
	}
	s.plane.Apply(s.T, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: metacontroller, namespace: metacontroller}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metacontroller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: metacontroller, namespace: metacontroller}]
---`+controllers)
	s.plane.AwaitAccess(s.T, account, authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}, true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.kubelet(s.Context())
	}()
	s.Cleanup(func() { <-ended })
	s.plane.Apply(s.T, fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: metacontroller, namespace: metacontroller}
spec:
  replicas: 1
  serviceName: ""
  selector: {matchLabels: {app: metacontroller}}
  template:
    metadata: {labels: {app: metacontroller}, finalizers: [example.com/kubelet]}
    spec: {serviceAccountName: metacontroller, containers: [{name: metacontroller, image: %q}]}
`, first))
	return engine
}

// kubelet has a program run outside of the cluster for each Pod of the StatefulSet. A Pod that is deleted is gone when its program has ended.
func (s *swap) kubelet(ctx context.Context) {
	client := s.Dynamic.Resource(pods).Namespace(namespace)
	watching, err := client.Watch(ctx, metav1.ListOptions{LabelSelector: "app=metacontroller"})
	if err != nil {
		s.Error(err)
		return
	}
	defer watching.Stop()
	stops := map[types.UID]func() error{}
	for event := range watching.ResultChan() {
		pod, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Deleted {
			continue
		}
		stop, runs := stops[pod.GetUID()]
		switch {
		case pod.GetDeletionTimestamp() == nil && !runs:
			stops[pod.GetUID()] = s.start(pod)
		case pod.GetDeletionTimestamp() != nil && runs:
			if err := stop(); err != nil {
				s.Errorf("the program of Pod %s: %v", pod.GetName(), err)
			}
			delete(stops, pod.GetUID())
			_, err := client.Patch(ctx, pod.GetName(), types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, pod.GetUID()),
				metav1.PatchOptions{})
			if err != nil && ctx.Err() == nil {
				s.Errorf("letting Pod %s go: %v", pod.GetName(), err)
			}
		}
	}
}

// start starts the program of a Pod's image, and returns what stops it.
func (s *swap) start(pod *unstructured.Unstructured) (stop func() error) {
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	switch {
	case containers[0].(map[string]any)["image"] == peerImage:
		return s.startPeer()
	case s.program == nil:
		s.program = server.Start(s.T, s.plane, server.Options{
			Definitions: s.definitions, Command: server.AsMetacontroller(s.T), Kubeconfig: s.kubeconfig, Env: []string{s.proxies[onDefinitions]},
		})
	default:
		s.program.Restart()
	}
	return s.program.Stop
}

func (s *swap) startPeer() (stop func() error) {
	s.Helper()
	address := func() string { return "127.0.0.1:" + strconv.Itoa(freeport.Find(s.T)) }
	command := process.Command(s.Context(), os.Getenv(peerVariable),
		"--kubeconfig", s.kubeconfig, "--metrics-address", address(), "--health-probe-bind-address", address())
	command.Env = append(command.Environ(), s.proxies[onPeer])
	running, err := process.Start(command, process.Options{Name: onPeer, Log: filepath.Join(s.TempDir(), "peer.log")})
	if err != nil {
		s.Error(err)
		return func() error { return nil }
	}
	s.Cleanup(running.Kill)
	return func() error {
		if err := running.Stop(cluster.Limit); err != nil {
			s.Logf("%v", err) // How it ends is its own.
		}
		return nil
	}
}

// migrate runs the command itself.
func (s *swap) migrate(args ...string) {
	s.Helper()
	printed, err := process.Output(s.Context(), server.Binary(s.T), append([]string{
		"migrate", "--kubeconfig", s.plane.Kubeconfig, "--data-dir", s.server.DataDir(), "--service-port", strconv.Itoa(s.server.Port()),
	}, args...)...)
	s.Log(printed)
	if err != nil {
		s.Fatal(err)
	}
}

// planned has a move go as far as its plan, which expects that nothing changes, and kills it there. The hooks that it calls are those of an engine that
// does not run.
func (s *swap) planned() {
	s.Helper()
	ctx, kill := context.WithCancel(s.Context())
	defer kill()
	o := s.options(s.config(), map[string]func(){"freeze": kill})
	o.SkipPlan, o.PlanTimeout = false, cluster.Limit
	s.hooks.mu.Lock()
	overlapping := s.hooks.overlapping
	s.hooks.mu.Unlock()
	if err := migration.Forward(ctx, o); ctx.Err() == nil {
		s.Errorf("in the middle of rollouts, the plan ends with %v", err)
	}
	s.hooks.mu.Lock()
	s.hooks.overlapping = overlapping
	s.hooks.mu.Unlock()
}

func (s *swap) setImage(image string) {
	s.Helper()
	s.plane.Kubectl(s.T, "set", "image", "statefulset/metacontroller", "--namespace", namespace, "metacontroller="+image)
}

// has returns whether a part, or a note, has a version.
func has(version string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		return o != nil && (value(o, "spec", "version") == version || value(o, "data", "version") == version)
	}
}

func value(o *unstructured.Unstructured, path ...string) string {
	found, _, _ := unstructured.NestedString(o.Object, path...)
	return found
}

// ready sets the condition Ready of a part.
func (s *swap) ready(part, status string) {
	s.Helper()
	s.Patch(parts, part, fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status), "status")
}

// appear creates a parent, and waits for its children.
func (s *swap) appear(app, name, version string) {
	s.Helper()
	o := object("Thing", s.scene.namespace, name, map[string]any{"spec": map[string]any{"version": version}})
	o.SetAPIVersion(things.GroupVersion().String())
	o.SetLabels(map[string]string{"app": app})
	s.Create(things, o)
	for _, part := range []string{"a", "b", "c"} {
		s.Await(parts, name+"-"+part, "to be created", has(version))
		s.ready(name+"-"+part, "True")
	}
	if app == "rolling" {
		s.Await(configMaps, name+"-note", "to be created", has(version))
	}
}

// halfway has all parents roll to a version until the check of the first part holds them, and another parent wait for its finalize hooks.
func (s *swap) halfway(version, engine string) {
	s.Helper()
	for _, name := range []string{"r1", "r2"} {
		s.ready(name+"-a", "False")
	}
	for _, name := range []string{"r1", "r2", "c1"} {
		s.Patch(things, name, fmt.Sprintf(`{"spec":{"version":%q}}`, version))
		s.Await(parts, name+"-a", "to be updated first", has(version))
	}
	for _, name := range []string{"r1", "r2"} {
		s.Await(configMaps, name+"-note", "to be updated", has(version))
	}
	before, leaving := s.hooks.count(), "leaving-"+version
	s.appear("rolling", leaving, version)
	s.Delete(things, leaving)
	s.awaitFinalizers(before, engine, leaving)
}

func (s *swap) awaitFinalizers(since int, engine, name string) {
	s.Helper()
	cluster.Eventually(s.T, cluster.Limit, engine+" to call the finalize hooks of "+name, func(context.Context) (bool, string) {
		return s.hooks.finalized(since, engine, name), fmt.Sprintf("there were %d other calls", s.hooks.count()-since)
	})
}

// goOn has the checks pass one after the other, and looks at what they hold until then.
func (s *swap) goOn(version string) {
	s.Helper()
	leaving := "leaving-" + version
	s.Patch(things, leaving, fmt.Sprintf(`{"metadata":{"annotations":{%q:"yes"}}}`, mayGo))
	s.Await(things, leaving, "to be finalized", cluster.Gone)
	for _, name := range []string{"r1", "r2"} {
		s.ready(name+"-a", "True")
		s.Await(parts, name+"-b", "to be updated next", has(version))
		s.Await(parts, name+"-c", "to be updated last", has(version))
	}
	for _, next := range []struct{ part, then string }{{"c1-a", "c1-b"}, {"c1-b", "c1-c"}} {
		if o := s.Get(parts, next.then); o == nil || has(version)(o) {
			s.Errorf("the rolling update did not wait for %s, and %s is %v", next.part, next.then, o)
		}
		s.ready(next.part, "True")
		s.Await(parts, next.then, "to be recreated next", has(version))
	}
	s.ready("c1-c", "True")
}

// facts are what stays as it is, of all objects, when one engine follows another one. On the way back revisions have another UID, and an annotation
// with the one that they had where they were created. Metacontroller has another form of writes, and does not know the finalizer of controllers.
func (s *swap) facts(from, to string) map[string]any {
	s.Helper()
	facts, owners := map[string]any{}, map[types.UID]bool{}
	alike, byOrigin := from != onPeer && to != onPeer, from == onServer && to == onDefinitions
	for _, r := range []schema.GroupVersionResource{things, parts, configMaps, revisions, composites, decorators} {
		in := s.Objects
		if r == composites || r == decorators {
			in = s.In("")
		}
		list, err := in.Resource(r).List(s.Context(), metav1.ListOptions{})
		if err != nil {
			s.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			fact := map[string]any{"uid": string(o.GetUID()), "finalizers": o.GetFinalizers(), "deleted": o.GetDeletionTimestamp() != nil}
			switch r {
			case composites, decorators:
				if !alike {
					delete(fact, "finalizers")
				}
			case things:
				owners[o.GetUID()] = true
			case parts, configMaps:
				if alike {
					fact["written"] = o.GetResourceVersion()
				}
				fact["content"] = []any{o.Object["spec"], o.Object["data"], o.Object["status"]}
			case revisions:
				if !slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owners[owner.UID] }) {
					continue // The garbage collector may delete it at any time.
				}
				fact["content"] = []any{o.Object["parentPatch"], o.Object["children"], o.GetOwnerReferences()}
				if origin := o.GetAnnotations()["metacontroller.k8s.io/moved-from"]; byOrigin && origin != "" {
					fact["uid"] = origin
				}
			}
			facts[r.Resource+" "+o.GetName()] = fact
		}
	}
	return facts
}

// taken waits until an engine has synced all parents, after the first so many calls.
func (s *swap) taken(since int, engine string) {
	s.Helper()
	cluster.Eventually(s.T, cluster.Limit, engine+" to have synced all parents", func(ctx context.Context) (bool, string) {
		list, err := s.Resource(things).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			o := &list.Items[i]
			name, decorated := o.GetName(), o.GetLabels()["app"] == "rolling"
			switch {
			case o.GetDeletionTimestamp() != nil:
				if !s.hooks.finalized(since, engine, name) {
					return false, name + " has not called finalize hooks"
				}
			case value(o, "status", by) != engine, decorated && o.GetAnnotations()[by] != engine:
				return false, fmt.Sprint(o.Object)
			}
		}
		return true, ""
	})
}

// move has one engine follow another one, and looks at what becomes of the objects, and at who calls hooks.
func (s *swap) move(from, to string, run func()) {
	s.Helper()
	s.taken(0, from)
	since, before := s.hooks.count(), s.facts(from, to)
	run()
	s.taken(since, to)
	if diff := gocmp.Diff(before, s.facts(from, to)); diff != "" {
		s.Errorf("the objects are others when %s has followed %s (-before +after):\n%s", to, from, diff)
	}
	var last, first time.Time
	late := 0
	for _, c := range s.hooks.since(since) {
		switch {
		case c.engine == to && first.IsZero():
			first = c.began
		case c.engine == from && !first.IsZero():
			late++
		case c.engine == from && c.ended.After(last):
			last = c.ended
		}
	}
	if late > 0 {
		s.Errorf("%s calls hooks %d times after %s has called one", from, late, to)
	}
	s.Logf("from the last call of a hook by %s to the first by %s: %s", from, to, first.Sub(last).Round(time.Millisecond))
}

// finish ends moving while the server's controllers run.
func (s *swap) finish() {
	s.Helper()
	before := s.facts(onServer, onServer)
	s.migrate("--finish")
	since := s.hooks.count()
	cluster.Eventually(s.T, cluster.Limit, "the server to go on", func(context.Context) (bool, string) {
		n := s.hooks.count()
		return n > since+10, fmt.Sprint(n - since)
	})
	if diff := gocmp.Diff(before, s.facts(onServer, onServer)); diff != "" {
		s.Errorf("the objects are others when the definitions are gone (-before +after):\n%s", diff)
	}
}

// uids returns those of the parts of a parent.
func (s *swap) uids(name string) map[string]types.UID {
	s.Helper()
	found := map[string]types.UID{}
	for _, part := range []string{"a", "b", "c"} {
		found[part] = s.Get(parts, name+"-"+part).GetUID()
	}
	return found
}

func TestEnginesFollowEachOtherInTheMiddleOfRollouts(t *testing.T) {
	s := newSwap(t)
	engine := s.install()
	s.appear("rolling", "r1", "1")
	s.appear("rolling", "r2", "1")
	s.appear("recreating", "c1", "1")
	kept, recreated := s.uids("r1"), s.uids("c1")
	s.halfway("2", engine)
	if got := s.Get(things, "r1").GetFinalizers(); len(got) != 2 {
		t.Errorf("a parent of two controllers has the finalizers %v", got)
	}
	if engine == onPeer {
		s.move(onPeer, onDefinitions, func() { s.setImage(image) })
	}
	s.planned()
	s.move(onDefinitions, onServer, func() { s.migrate() })
	s.goOn("2")
	s.halfway("3", onServer)
	s.move(onServer, onDefinitions, func() { s.runKilled(migration.Back, nil) })
	if engine == onPeer { // Its own rolling updates go no further than this (docs/reference/contract.md#s14.6).
		s.move(onDefinitions, onPeer, func() { s.setImage(peerImage) })
		s.move(onPeer, onDefinitions, func() { s.setImage(image) })
	}
	s.goOn("3")
	s.halfway("4", onDefinitions)
	s.move(onDefinitions, onServer, func() { s.runKilled(migration.Forward, nil) })
	s.finish()
	s.goOn("4")
	for part, uid := range s.uids("c1") {
		if uid == recreated[part] {
			t.Errorf("the part %s was not recreated by any rolling update", part)
		}
	}
	if diff := gocmp.Diff(kept, s.uids("r1")); diff != "" {
		t.Errorf("children that are updated in place were recreated (-before +after):\n%s", diff)
	}
	for _, name := range []string{"r1", "r2"} {
		s.Patch(things, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"yes"}}}`, mayGo))
		s.Delete(things, name)
		s.Await(things, name, "to be finalized", cluster.Gone)
	}
	if len(s.hooks.overlapping) > 0 {
		t.Errorf("two engines call hooks for the same parent at the same time: %v", s.hooks.overlapping)
	}
}
