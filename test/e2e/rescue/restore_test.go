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

// Package rescue runs, on a real control plane, what an operator does when something was lost: a store is saved and restored while parents
// live on, finalizers are released without a server, controllers move by files, and pages of docs/operations are played. It holds tests
// only.
package rescue

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

// save saves a snapshot of the running server.
func save(t *testing.T, e *fixture.Environment) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "backup.db")
	must(t, e.Kubeconfig, "snapshot", "save", file, "--data-dir", e.Server.DataDir())
	return file
}

// lose stops the server and takes its store away; restore brings back a former one and starts the server on it.
func lose(t *testing.T, e *fixture.Environment) {
	t.Helper()
	if err := e.Server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(e.Server.DataDir(), "etcd", "member"), filepath.Join(t.TempDir(), "lost")); err != nil {
		t.Fatal(err)
	}
}

func restore(t *testing.T, e *fixture.Environment, file string) {
	t.Helper()
	must(t, e.Kubeconfig, "snapshot", "restore", file, "--data-dir", e.Server.DataDir())
	e.Server.Restart()
}

// TestRestoringWhatWasSavedWhileItWasWritten restores the latest state: all goes on as if nothing had been.
func TestRestoringWhatWasSavedWhileItWasWritten(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	f := newFleet(t, e, fixture.Composite)
	names := []string{"p0", "p1", "p2", "p3"}
	running := f.run(names...)

	// Rollouts and labels of the controller are written meanwhile.
	writing, done := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		for n := 0; writing.Err() == nil; n++ {
			name := names[n%len(names)]
			if _, err := f.Resource(fixture.Things).Patch(t.Context(), name, "application/merge-patch+json",
				fmt.Appendf(nil, `{"spec":{"shown":"%d"}}`, n), metav1.PatchOptions{}); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	var file string
	for range 3 {
		file = save(t, e)
		running.Patch(`{"metadata":{"labels":{"saved":"again"}}}`)
	}
	done()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f.show(name, "after")
	}
	f.Settle()
	before, seen := f.uids(names...), f.watch()
	lose(t, e)
	restore(t, e, file)
	running.AwaitReady()
	f.Settle()
	unharmed(t, f, before, seen, names...)
	f.show("p0", "going on")
}

// unharmed fails the test if an object is gone or another one.
func unharmed(t *testing.T, f *fleet, before map[string]types.UID, seen *witness, names ...string) {
	t.Helper()
	if after := f.uids(names...); !maps.Equal(before, after) {
		t.Errorf("the UIDs were %v, and are %v", before, after)
	}
	if deleted := seen.of(before); len(deleted) > 0 {
		t.Errorf("deleted were %v", deleted)
	}
}

// TestRestoringAnOlderState restores a state before parents were updated, and before a controller was there.
func TestRestoringAnOlderState(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	f := newFleet(t, e, fixture.Composite)
	names := []string{"p0", "p1", "p2", "p3"}
	running := f.run(names...)
	f.Settle()
	file := save(t, e)

	// What the snapshot does not know: updated children with their revisions, another spec, another controller.
	for _, name := range names {
		f.show(name, "after")
	}
	running.Patch(`{"spec":{"resyncPeriodSeconds":3600}}`)
	running.AwaitReady()
	later := newFleet(t, e, fixture.Decorator)
	added := later.run(names...)
	f.Settle()
	later.Settle()
	lost := version(t, e)
	ofBoth, seen, seenLater := [2]map[string]types.UID{f.uids(names...), later.uids(names...)}, f.watch(), later.watch()

	lose(t, e)
	restore(t, e, file)
	running.AwaitReady()
	f.Settle()
	unharmed(t, f, ofBoth[0], seen, names...)
	for _, name := range names {
		if o := later.Get(fixture.Things, name); !later.carries(o) {
			t.Errorf("%s has the finalizers %v: who took that of a controller off that is not there?", name, o.GetFinalizers())
		}
	}

	// Clients that saw what is lost begin anew.
	if _, err := watchFrom(t, e, lost); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from a version that is lost: got %v, want it to be too old", err)
	}
	if now := version(t, e); now <= lost {
		t.Errorf("the version of a list went back from %d to %d", lost, now)
	}

	// The controller that is missing is created again, and goes on with its parents.
	added.Forget()
	again := later.Run(later.definition)
	later.Settle()
	unharmed(t, later, ofBoth[1], seenLater, names...)
	later.show("p0", "going on")
	again.Delete()
	again.AwaitGone()
	for _, name := range names {
		later.Await(fixture.Things, name, "to be released", later.released)
	}
}

// version returns the resourceVersion of a list of controllers.
func version(t *testing.T, e *fixture.Environment) (version uint64) {
	t.Helper()
	list, err := e.Versioned.MetacontrollerV1alpha1().CompositeControllers().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(list.ResourceVersion, &version); err != nil {
		t.Fatal(err)
	}
	return version
}

// watchFrom watches controllers from a version, and returns the error with which that begins.
func watchFrom(t *testing.T, e *fixture.Environment, version uint64) (*v1alpha1.CompositeController, error) {
	t.Helper()
	events, err := e.Versioned.MetacontrollerV1alpha1().CompositeControllers().Watch(t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(version)})
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var event watch.Event
	select {
	case got, open := <-events.ResultChan():
		if !open {
			return nil, nil
		}
		event = got
	case <-ctx.Done():
		t.Fatalf("a watch from version %d shows nothing: %v", version, ctx.Err())
	}
	if object, ok := event.Object.(*v1alpha1.CompositeController); ok {
		return object, nil
	}
	return nil, apierrors.FromObject(event.Object)
}

// TestWhatTheCommandsSay goes through the ways in which they are used wrongly.
func TestWhatTheCommandsSay(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	newFleet(t, e, fixture.Composite).run("p0")
	file, dir := save(t, e), e.Server.DataDir()
	status := must(t, "", "snapshot", "status", file)
	if !strings.Contains(status, "1 compositecontrollers, 1 controllerrevisions") {
		t.Errorf("the status does not say what is in the snapshot:\n%s", status)
	}
	var decoded struct {
		Revision int64          `json:"revision"`
		Objects  map[string]int `json:"objects"`
	}
	if err := json.Unmarshal([]byte(must(t, "", "snapshot", "status", file, "-o", "json")), &decoded); err != nil || decoded.Revision == 0 ||
		decoded.Objects["compositecontrollers"] != 1 {
		t.Errorf("the status as JSON: %+v, error %v", decoded, err)
	}
	broken := filepath.Join(t.TempDir(), "broken.db")
	if err := os.WriteFile(broken, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"RestoreUnderAServer": {[]string{"snapshot", "restore", file, "--data-dir", dir}, "is in use by process"},
		"RestoreTwice":        {[]string{"snapshot", "restore", file, "--data-dir", restored(t, file)}, "holds a store already, and nothing of it was changed"},
		"RestoreNowhere":      {[]string{"snapshot", "restore", file}, `required flag(s) "data-dir" not set`},
		"RestoreSomething":    {[]string{"snapshot", "restore", broken, "--data-dir", empty}, "cannot be restored: it has 7 bytes and no checksum"},
		"RestoreNothing":      {[]string{"snapshot", "restore", broken + "x", "--data-dir", empty}, "no such file"},
		"StatusOfSomething":   {[]string{"snapshot", "status", broken}, "cannot be restored: it has 7 bytes and no checksum"},
		"SaveWithoutServer":   {[]string{"snapshot", "save", broken, "--data-dir", empty}, "no server with an embedded store runs on data directory " + empty},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := command(t, "", "", test.args...)
			if err == nil || !strings.Contains(output, test.want) || !strings.HasPrefix(output, "Error: ") {
				t.Errorf("got %v and %q, want %q in it", err, output, test.want)
			}
		})
	}
}

// restored is a data directory with a store.
func restored(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	output, err := command(t, string(content), "", "snapshot", "restore", "-", "--data-dir", dir)
	if err != nil || !strings.Contains(output, "register it again") {
		t.Fatalf("restoring from the standard input: %v\n%s", err, output)
	}
	return dir
}

// What is to be simulated of the shape: a StatefulSet with one Pod, and a node on which no kubelet is.
const lostNode = `
{apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {node.example.com/lost: ""}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: metacontroller}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: metacontroller-apiserver, namespace: metacontroller}
spec:
  replicas: 1
  serviceName: metacontroller-apiserver
  selector: {matchLabels: {app.kubernetes.io/name: metacontroller-apiserver}}
  template:
    metadata: {labels: {app.kubernetes.io/name: metacontroller-apiserver}}
    spec:
      containers: [{name: apiserver, image: metacontroller-apiserver}]
      terminationGracePeriodSeconds: 1
`

// nodeStatus is what a kubelet, or the node controller, says of the node.
func nodeStatus(ready string) string {
	return `{"status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
		"conditions": [{"type": "Ready", "status": "` + ready + `", "reason": "Test", "lastHeartbeatTime": "2026-01-02T03:04:05Z",
		"lastTransitionTime": "2026-01-02T03:04:05Z"}]}}`
}

// TestANodeIsLost plays the page. The node exists for the API server alone; the StatefulSet, the garbage collection of Pods and the
// scheduler are real.
func TestANodeIsLost(t *testing.T) {
	figures := report.For(t, report.NodeLost)
	c := cluster.Shared(t)
	c.Kubectl(t, "cordon", "kwok-node-0")
	c.KubectlInput(t, lostNode, "apply", "-f", "-")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		_, _ = c.TryKubectl(ctx, "", "uncordon", "kwok-node-0")
		_, _ = c.TryKubectl(ctx, "", "delete", "statefulset", "metacontroller-apiserver", "--namespace", "metacontroller")
		_, _ = c.TryKubectl(ctx, "", "delete", "node", "node-1")
	})
	c.Kubectl(t, "patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", nodeStatus("True"))
	field := func(path string) string {
		output, err := c.TryKubectl(t.Context(), "", "get", "pod", "metacontroller-apiserver-0", "--namespace", "metacontroller", "-o", "jsonpath={"+path+"}")
		if err != nil {
			return err.Error()
		}
		return output
	}
	cluster.Eventually(t, patience, "the Pod to be on the node", func(context.Context) (bool, string) {
		got := field(".spec.nodeName")
		return got == "node-1", got
	})
	lost := field(".metadata.uid")

	// The node stops answering, and the Pod is evicted: its deletion waits for a kubelet.
	c.Kubectl(t, "patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", nodeStatus("Unknown"))
	c.Kubectl(t, "delete", "pod", "metacontroller-apiserver-0", "--namespace", "metacontroller", "--wait=false")
	c.Kubectl(t, "uncordon", "kwok-node-0")
	cluster.Eventually(t, patience, "the Pod to be terminating", func(context.Context) (bool, string) {
		got := field(".metadata.deletionTimestamp")
		return strings.HasPrefix(got, "20"), got
	})

	began := time.Now()
	s := terminal.New(t, c)
	s.PlaySection(t, "docs/operations/availability.md", "## When the node is lost", 3, *update)
	if now := field(".metadata.uid"); now == lost || now == "" {
		t.Errorf("the Pod is still %s", now)
	}
	if on := field(".spec.nodeName"); on != "kwok-node-0" {
		t.Errorf("the Pod runs on %s", on)
	}
	figures.Sayf("the Pod runs on another node %s after the node was given up", time.Since(began).Round(time.Second))
}

func TestMain(m *testing.M) { os.Exit(terminal.Main(m)) }

// command runs a subcommand of the server's binary, and returns what it printed on both outputs.
func command(t *testing.T, input, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), server.Binary(t), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdin = bytes.NewBufferString(input)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// must is command for what has to succeed.
func must(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	output, err := command(t, "", kubeconfig, args...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, output)
	}
	return output
}

// A fleet is a controller with a finalize hook and rolling updates, whose parents have one ConfigMap each that shows their spec.
type fleet struct {
	*fixture.Test

	script     *fixture.Script
	definition fixture.Definition
	finalizer  string
}

func newFleet(t *testing.T, e *fixture.Environment, kind fixture.Kind) *fleet {
	t.Helper()
	f := &fleet{Test: e.NewTest(t), script: e.NewScript(kind)}
	f.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		if c.Finalizing {
			return &fixture.Reply{Finalized: true}, nil
		}
		shown, _, _ := unstructured.NestedString(c.Parent.Object, "spec", "shown")
		return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap(c.Parent.GetName()+"-child", map[string]any{"shown": shown})}}, nil
	})
	f.Handle("/hook", f.script)
	method := v1alpha1.ChildUpdateRollingRecreate
	if kind == fixture.Decorator {
		method = v1alpha1.ChildUpdateRecreate
	}
	f.definition = fixture.Definition{
		Kind: kind, Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: method}}, Sync: f.At("/hook"), Finalize: f.At("/hook"),
	}
	f.finalizer = f.Finalizer(f.definition)
	return f
}

// run creates the controller, and parents that are done.
func (f *fleet) run(parents ...string) *controllers.Controller {
	f.T.Helper()
	running := f.Run(f.definition)
	for _, name := range parents {
		f.Parent(name, map[string]any{"shown": "before"})
	}
	for _, name := range parents {
		f.await(name, "before")
	}
	return running
}

// show changes a parent, and waits until its child follows.
func (f *fleet) show(name, text string) {
	f.T.Helper()
	f.Patch(fixture.Things, name, `{"spec":{"shown":"`+text+`"}}`)
	f.await(name, text)
}

func (f *fleet) await(name, text string) {
	f.T.Helper()
	f.Await(fixture.ConfigMaps, name+"-child", "to show "+text, func(o *unstructured.Unstructured) bool {
		return fixture.Value(o, "data", "shown") == text && o.GetDeletionTimestamp() == nil
	})
	f.Await(fixture.Things, name, "to carry the finalizer", f.carries)
}

func (f *fleet) carries(o *unstructured.Unstructured) bool {
	return fixture.HasFinalizer(o, f.finalizer)
}

func (f *fleet) released(o *unstructured.Unstructured) bool { return o != nil && !f.carries(o) }

// uids returns the UIDs of the parents and children by their names, without the sentinels of the fixture.
func (f *fleet) uids(names ...string) map[string]types.UID {
	f.T.Helper()
	found := map[string]types.UID{}
	for _, name := range names {
		for _, o := range []*unstructured.Unstructured{f.Get(fixture.Things, name), f.Get(fixture.ConfigMaps, name+"-child")} {
			if o == nil {
				f.T.Errorf("%s or its child is not there", name)
				continue
			}
			found[o.GetKind()+" "+o.GetName()] = o.GetUID()
		}
	}
	return found
}

// A witness notes which objects are deleted.
type witness struct {
	mu      sync.Mutex
	deleted []string
}

// watch watches parents and children from now on.
func (f *fleet) watch() *witness {
	f.T.Helper()
	w := &witness{}
	var watching sync.WaitGroup
	f.T.Cleanup(watching.Wait)
	for _, resource := range []schema.GroupVersionResource{fixture.Things, fixture.ConfigMaps} {
		events, err := f.Resource(resource).Watch(f.T.Context(), metav1.ListOptions{})
		if err != nil {
			f.T.Fatal(err)
		}
		f.T.Cleanup(events.Stop)
		watching.Go(func() {
			for event := range events.ResultChan() {
				if o, ok := event.Object.(*unstructured.Unstructured); ok && event.Type == watch.Deleted {
					w.mu.Lock()
					w.deleted = append(w.deleted, o.GetKind()+" "+o.GetName())
					w.mu.Unlock()
				}
			}
		})
	}
	return w
}

// of returns those of the deleted objects that are among some.
func (w *witness) of(uids map[string]types.UID) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.deleted), func(name string) bool { return uids[name] == "" })
}
