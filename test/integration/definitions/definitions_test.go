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

// Package definitions checks servers that run controllers on CustomResourceDefinitions of the cluster (docs/design/0026-definitions.md): on some
// in the form of Metacontroller's, with Metacontroller's command line, and on those of artifacts/definitions.
//
// What controllers do there is what the suites under test/conformance check: with METACONTROLLER_TEST_API=definitions they run so.
package definitions

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

var (
	parts      = schema.GroupVersionResource{Group: fixture.Group, Version: "v1", Resource: "parts"}
	composites = v1alpha1.SchemeGroupVersion.WithResource("compositecontrollers")
	leases     = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// A rollout is a parent with two parts, of which one is held in the middle of a rolling update.
type rollout struct {
	*fixture.Test

	// object is the controller object, and controller what is known of it.
	object     *cluster.Objects
	controller *controllers.Controller
}

func newRollout(t *testing.T, e *fixture.Environment) *rollout {
	t.Helper()
	r := &rollout{Test: e.NewTest(t)}
	r.object = r.In("")
	script := e.NewScript(fixture.Composite)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		if c.Finalizing {
			return &fixture.Reply{Finalized: len(c.Children["Part."+fixture.Group+"/v1"]) == 0}, nil
		}
		reply := &fixture.Reply{Status: map[string]any{"parts": len(c.Children["Part."+fixture.Group+"/v1"])}}
		version, _, err := unstructured.NestedString(c.Parent.Object, "spec", "version")
		for _, name := range []string{"a", "b"} {
			reply.Children = append(reply.Children, &hook.Object{Object: map[string]any{
				"apiVersion": fixture.Group + "/v1", "kind": "Part", "metadata": map[string]any{"name": name}, "spec": map[string]any{"version": version},
			}})
		}
		return reply, err
	})
	r.Handle("/sync", script)
	r.controller = r.Declare(fixture.Definition{
		Kind: fixture.Composite, Sync: r.At("/sync"), Finalize: r.At("/sync"),
		EditComposite: func(spec *v1alpha1.CompositeControllerSpec) {
			spec.Paused = new(false) // No definition of Metacontroller knows it.
			spec.ChildResources = []v1alpha1.CompositeControllerChildResourceRule{{
				ResourceRule: fixture.Rule(parts),
				UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{
					Method:       v1alpha1.ChildUpdateRollingInPlace,
					StatusChecks: v1alpha1.ChildUpdateStatusChecks{Conditions: []v1alpha1.StatusConditionCheck{{Type: "Ready", Status: new("True")}}},
				},
			}}
		},
	})
	return r
}

// ready sets the condition Ready of a part.
func (r *rollout) ready(name, status string) {
	r.T.Helper()
	r.Patch(parts, name, fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status), "status")
}

// has returns whether an object has a version.
func has(version string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		return o != nil && fixture.Value(o, "spec", "version") == version
	}
}

// revisions waits until the parent has so many.
func (r *rollout) revisions(want int) {
	r.T.Helper()
	cluster.Eventually(r.T, r.Limit, fmt.Sprintf("%d revisions", want), func(ctx context.Context) (bool, string) {
		list, err := r.Resource(fixture.Revisions).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		return len(list.Items) == want, fmt.Sprintf("%d", len(list.Items))
	})
}

// begin has a rolling update wait in its middle.
func (r *rollout) begin() {
	r.T.Helper()
	r.Parent("p", map[string]any{"version": "1"})
	for _, name := range []string{"a", "b"} {
		r.Await(parts, name, "to be created", has("1"))
		r.ready(name, "True")
	}
	r.revisions(1)
	r.ready("a", "False")
	r.Patch(fixture.Things, "p", `{"spec":{"version":"2"}}`)
	r.Await(parts, "a", "to be updated first", has("2"))
	r.revisions(2)
}

// end has the update go on, and the parent be finalized.
func (r *rollout) end() {
	r.T.Helper()
	if b := r.Get(parts, "b"); !has("1")(b) {
		r.T.Errorf("the rolling update did not wait for the first part: %v", b)
	}
	r.ready("a", "True")
	r.Await(parts, "b", "to be updated next", has("2"))
	r.revisions(2) // The former one stays, so that one can go back to it.
	r.Await(fixture.Things, "p", "to have a status and the finalizer", func(o *unstructured.Unstructured) bool {
		n, _, _ := unstructured.NestedInt64(o.Object, "status", "parts")
		return n == 2 && len(o.GetFinalizers()) == 1
	})
	r.Delete(fixture.Things, "p")
	r.Await(fixture.Things, "p", "to be finalized", cluster.Gone)
}

// toldOfPruning waits until the log has said so often that the status is pruned, which is once after each start.
func (r *rollout) toldOfPruning(want int) {
	r.T.Helper()
	cluster.Eventually(r.T, r.Limit, "the log to say that the status is pruned", func(context.Context) (bool, string) {
		printed, err := os.ReadFile(r.Server.Log())
		n := strings.Count(string(printed), "prune the status of controllers")
		return err == nil && n == want, fmt.Sprint(n, err)
	})
}

func TestMetacontrollersDefinitionsAndCommandSuffice(t *testing.T) {
	manifests, err := os.ReadFile("testdata/metacontroller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e := fixture.SetUp(t, fixture.Options{
		Server:    server.Options{Definitions: string(manifests), Command: server.AsMetacontroller(t)},
		Resources: []cluster.CustomResource{{Resource: parts, Kind: "Part"}},
	})
	r := newRollout(t, e)
	r.In("default").AwaitEvent(r.Name, "Normal", "Started", "Started controller: "+r.Name)
	r.begin()
	lease := r.In("metacontroller").Await(leases, "metacontroller", "to be held", cluster.Exists)
	if holder := fixture.Value(lease, "spec", "holderIdentity"); holder == "" {
		t.Errorf("nobody holds Metacontroller's Lease: %v", lease)
	}
	// What is known of the controller is in the metrics.
	cluster.Eventually(t, r.Limit, "the condition Ready in the metrics", func(ctx context.Context) (bool, string) {
		page, err := e.Server.Metrics(ctx, "metacontroller_controller_condition")
		if err != nil {
			return false, err.Error()
		}
		n, found := page.Value("metacontroller_controller_condition", "controller", "CompositeController-"+r.Name, "condition", "Ready", "status", "True")
		return found && n == 1, fmt.Sprint(n, found)
	})
	r.toldOfPruning(1)
	e.Server.Kill()
	e.Server.Restart()
	r.end()
	r.toldOfPruning(2)
	object := r.object.Get(composites, r.Name)
	if status, _, _ := unstructured.NestedMap(object.Object, "status"); len(status) > 0 {
		t.Errorf("the definitions keep the status %v", status)
	}
	// Once the definitions are those of this program, the status is kept.
	e.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(cluster.Root(), "artifacts", "definitions"))
	r.controller.AwaitReady()
}

func TestOwnDefinitionsCheckAndShowControllers(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{
		Server:    server.Options{Definitions: server.Definitions(t)},
		Resources: []cluster.CustomResource{{Resource: parts, Kind: "Part"}},
	})
	r := newRollout(t, e)
	r.controller.AwaitReady()
	r.begin()
	r.end()
	printed := r.Kubectl(t, "get", "cc", r.Name)
	for _, want := range []string{"NAME", "PARENT", "READY", "REASON", "SYNCED", "FAILING", "AGE", "things", "True", "Running"} {
		if !slices.Contains(strings.Fields(printed), want) {
			t.Errorf("kubectl prints no %s:\n%s", want, printed)
		}
	}
	for name, test := range map[string]struct{ spec, want string }{
		"no address":      {`hooks: {sync: {webhook: {path: /sync}}}`, "a webhook needs url, or service and path"},
		"two hooks":       {`hooks: {sync: {webhook: {url: "http://a"}, inline: {}}}`, "a hook has webhook or inline, and not both"},
		"a duration":      {`hooks: {sync: {webhook: {url: "http://a", timeout: 1d}}}`, "spec.hooks.sync.webhook.timeout"},
		"many workers":    {`workers: 1001`, "spec.workers"},
		"no such method":  {`childResources: [{apiVersion: v1, resource: pods, updateStrategy: {method: Never}}]`, "updateStrategy.method"},
		"no such field":   {`worker: 1`, `unknown field "spec.worker"`},
		"two authorities": {`hooks: {sync: {webhook: {url: "https://a", caBundle: {inline: a, secretRef: {name: a, namespace: a}}}}}`, "exactly one of inline, secretRef and configMapRef"},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeController\nmetadata: {name: refused}\n" +
				"spec: {parentResource: {apiVersion: v1, resource: pods}, " + test.spec + "}\n"
			if output, err := e.TryKubectl(t.Context(), manifest, "create", "--filename=-"); err == nil || !strings.Contains(output, test.want) {
				t.Errorf("kubectl says %v: %s\nwant %s", err, output, test.want)
			}
		})
	}
}
