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

package rescue

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

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
	f.parents(parents...)
	return running
}

// parents creates parents, and waits until they are done.
func (f *fleet) parents(names ...string) {
	f.T.Helper()
	for _, name := range names {
		f.Parent(name, map[string]any{"shown": "before"})
	}
	for _, name := range names {
		f.await(name, "before")
	}
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
