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
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

var update = flag.Bool("update", false, "write what is printed to the pages")

const (
	apiService = "v1alpha1.metacontroller.k8s.io"
	// patience covers the aggregator's probes and the namespace controller's back-off on a busy machine.
	patience = 3 * time.Minute
)

// websites are the parents of the pages.
var websites = cluster.CustomResource{
	Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "websites"}, Kind: "Website",
}

// program returns a folder with the server's program under its name.
func program(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Symlink(server.Binary(t), filepath.Join(folder, "metacontroller-apiserver")); err != nil {
		t.Fatal(err)
	}
	return folder
}

// websitesRun runs the controller websites with two parents: shop/blog and team/wiki.
func websitesRun(t *testing.T, e *fixture.Environment) *fleet {
	t.Helper()
	f := newFleet(t, e, fixture.Composite)
	f.definition.Name, f.definition.Parents = "websites", []schema.GroupVersionResource{websites.Resource}
	f.definition.Selector = map[string]string{}
	f.finalizer = f.Finalizer(f.definition)
	running := f.Run(f.definition)
	running.Forget()
	for _, each := range [][2]string{{"shop", "blog"}, {"team", "wiki"}} {
		namespace, name := each[0], each[1]
		if _, err := e.TryKubectl(t.Context(), "", "create", "namespace", namespace); err == nil {
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
				defer cancel()
				_, _ = e.TryKubectl(ctx, "", "delete", "namespace", namespace, "--ignore-not-found")
			})
		}
		f.CreateIn(namespace, websites.Resource, name, map[string]any{"spec": map[string]any{"shown": "before"}}, nil)
		f.In(namespace).Await(fixture.ConfigMaps, name+"-child", "to be there", cluster.Exists)
		f.In(namespace).Await(websites.Resource, name, "to carry the finalizer", f.carries)
	}
	return f
}

// TestUninstalling plays the page, first in the right order.
func TestUninstalling(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Resources: []cluster.CustomResource{websites}})
	// Other tests have lost their stores with controllers in them.
	must(t, e.Kubeconfig, "release-finalizers", "--yes")
	f := websitesRun(t, e)
	s := terminal.New(t, e.Cluster)
	s.Prefer(program(t))
	s.PlaySection(t, "docs/operations/uninstall.md", "## In the right order", 3, *update)
	if err := e.Server.Stop(); err != nil {
		t.Fatal(err)
	}
	for namespace, name := range map[string]string{"shop": "blog", "team": "wiki"} {
		if o := f.In(namespace).Get(websites.Resource, name); !f.released(o) || o.GetDeletionTimestamp() != nil {
			t.Errorf("%s/%s is not there, or not released: %v", namespace, name, o)
		}
		if f.In(namespace).Get(fixture.ConfigMaps, name+"-child") == nil {
			t.Errorf("the child of %s is gone", name)
		}
	}
	deleteNamespaces(t, e, "shop", "team")
}

// TestTheServerWentFirst plays the way out.
func TestTheServerWentFirst(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Resources: []cluster.CustomResource{websites}})
	// Other tests have lost their stores with controllers in them.
	must(t, e.Kubeconfig, "release-finalizers", "--yes")
	f := websitesRun(t, e)
	s := terminal.New(t, e.Cluster)
	s.Prefer(program(t))

	// As long as the server runs, its controllers are left alone.
	output, err := command(t, "", e.Kubeconfig, "release-finalizers", "--yes")
	if err == nil || !strings.Contains(output, "compositecontroller/websites exists, and a server runs it; left alone: 2 objects.") {
		t.Errorf("release-finalizers while the server runs: %v\n%s", err, output)
	}
	for namespace, name := range map[string]string{"shop": "blog", "team": "wiki"} {
		if o := f.In(namespace).Get(websites.Resource, name); !f.carries(o) {
			t.Errorf("%s/%s was released", namespace, name)
		}
	}

	if err := e.Server.Stop(); err != nil {
		t.Fatal(err)
	}
	e.Kubectl(t, "wait", "--for=condition=Available=False", "--timeout="+patience.String(), "apiservice/"+apiService)
	e.Kubectl(t, "delete", "namespace", "shop", "--wait=false")
	e.Kubectl(t, "create", "namespace", "bystander")
	e.Kubectl(t, "delete", "namespace", "bystander", "--wait=false")
	cluster.Eventually(t, patience, "another namespace to say why it stays", func(ctx context.Context) (bool, string) {
		got, err := e.Field(ctx, "", "namespace/bystander", "{.status.conditions}")
		return err == nil && strings.Contains(got, "NamespaceDeletionDiscoveryFailure"), fmt.Sprintf("%s %v", got, err)
	})
	// The namespace controller deletes what it can discover; that of the parent is not waited for by the page.
	f.In("shop").Await(websites.Resource, "blog", "to be deleted", func(o *unstructured.Unstructured) bool {
		return o != nil && o.GetDeletionTimestamp() != nil
	})
	s.PlaySection(t, "docs/operations/uninstall.md", "## When the server went first", 4, *update)
	e.Kubectl(t, "wait", "--for=delete", "namespace/bystander", "--timeout="+patience.String())
	if o := f.In("team").Get(websites.Resource, "wiki"); !f.released(o) || o.GetDeletionTimestamp() != nil {
		t.Errorf("team/wiki is not there, or not released: %v", o)
	}
	must(t, e.Kubeconfig, "unregister")
	deleteNamespaces(t, e, "team")
}

// deleteNamespaces deletes namespaces, and waits until they are gone.
func deleteNamespaces(t *testing.T, e *fixture.Environment, names ...string) {
	t.Helper()
	e.Kubectl(t, append([]string{"delete", "namespace", "--timeout=" + patience.String()}, names...)...)
}

// definitions are CustomResourceDefinitions that serve the group, and prune nothing.
func definitions() string {
	text := ""
	for kind, scope := range map[string]string{"CompositeController": "Cluster", "DecoratorController": "Cluster", "ControllerRevision": "Namespaced"} {
		text += `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + strings.ToLower(kind) + `s.metacontroller.k8s.io,
			annotations: {api-approved.kubernetes.io: unapproved}}, spec: {group: metacontroller.k8s.io, scope: ` + scope + `,
			names: {kind: ` + kind + `, plural: ` + strings.ToLower(kind) + `s}, versions: [{name: v1alpha1, served: true, storage: true,
			schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}` + "\n---\n"
	}
	return text
}

// crds are their names.
var crds = []string{
	"compositecontrollers.metacontroller.k8s.io", "decoratorcontrollers.metacontroller.k8s.io", "controllerrevisions.metacontroller.k8s.io",
}

// TestMovingToDefinitionsAndBack exports from a server, imports into CustomResourceDefinitions, exports from these, and imports into a
// server with an empty store, while parents live on.
func TestMovingToDefinitionsAndBack(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	f := newFleet(t, e, fixture.Composite)
	names := []string{"p0", "p1"}
	running := f.run(names...)
	f.Settle()
	before, seen := f.uids(names...), f.watch()
	exported := filepath.Join(t.TempDir(), "exported.yaml")
	write := func() string {
		t.Helper()
		text := must(t, e.Kubeconfig, "export")
		if !strings.Contains(text, "1 compositecontrollers") || !strings.Contains(text, "Exported ") {
			t.Errorf("exported was\n%s", text)
		}
		// The notes are on the other output; here both are read.
		text, _, _ = strings.Cut(text, "Exported ")
		if err := os.WriteFile(exported, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := write()
	for _, wrong := range []string{"resourceVersion", "managedFields", "conditions:", "metacontroller.k8s.io/parents"} {
		if strings.Contains(text, wrong) {
			t.Errorf("the export has %s:\n%s", wrong, text)
		}
	}
	if first := strings.Index(text, "kind: ControllerRevision"); first < 0 || first > strings.Index(text, "kind: CompositeController") {
		t.Errorf("the revisions are not first:\n%s", text)
	}

	// What is there is left alone.
	if output := must(t, e.Kubeconfig, "import", "-f", exported); strings.Contains(output, "created") || !strings.Contains(output, ": unchanged") {
		t.Errorf("importing what is there printed\n%s", output)
	}
	if output, err := command(t, "", e.Kubeconfig, "import", "-f", exported, "--paused"); err == nil || !strings.Contains(output, "exists, and differs in spec") {
		t.Errorf("importing what differs: %v\n%s", err, output)
	}

	// To definitions.
	lose(t, e)
	must(t, e.Kubeconfig, "unregister")
	e.KubectlInput(t, definitions(), "apply", "-f", "-")
	e.Kubectl(t, append([]string{"wait", "--for=condition=Established", "--timeout=" + patience.String(), "crd"}, crds...)...)
	cluster.Eventually(t, patience, "the definitions to be served", func(ctx context.Context) (bool, string) {
		output, err := e.TryKubectl(ctx, "", "get", "compositecontrollers.metacontroller.k8s.io")
		return err == nil, output
	})
	if output := must(t, e.Kubeconfig, "import", "-f", exported); strings.Count(output, ": created") != strings.Count(text, "\nkind: ") {
		t.Errorf("importing into definitions printed\n%s", output)
	}

	// And back.
	write()
	e.Kubectl(t, append([]string{"delete", "crd", "--timeout=" + patience.String()}, crds...)...)
	cluster.Eventually(t, patience, "the definitions not to be served", func(ctx context.Context) (bool, string) {
		output, err := e.TryKubectl(ctx, "", "get", "apiservice", apiService)
		return err != nil && strings.Contains(output, "(NotFound)"), output
	})
	e.Server.RestartAndRegister()
	if output := must(t, e.Kubeconfig, "import", "-f", exported, "--dry-run"); !strings.Contains(output, ": would be created") {
		t.Errorf("trying printed\n%s", output)
	}
	if output := must(t, e.Kubeconfig, "import", "-f", exported); strings.Count(output, ": created") != strings.Count(text, "\nkind: ") {
		t.Errorf("importing into the server printed\n%s", output)
	}
	running.AwaitReady()
	f.Settle()
	if after := f.uids(names...); !maps.Equal(before, after) {
		t.Errorf("the UIDs were %v, and are %v", before, after)
	}
	if deleted := seen.of(before); len(deleted) > 0 {
		t.Errorf("deleted were %v", deleted)
	}
	f.show("p0", "going on")

	// A revision whose parent is another object by now would be collected.
	orphan := ""
	for document := range strings.SplitSeq(text, "\n---\n") {
		if of := "uid: " + string(before["Thing p1"]); strings.Contains(document, of) {
			orphan = strings.ReplaceAll(document, of, "uid: 00000000-0000-0000-0000-000000000000")
		}
	}
	output, err := command(t, orphan, e.Kubeconfig, "import", "-f", "-")
	if err != nil || !strings.Contains(output, "left out: its parent Thing p1 is another object by now") {
		t.Errorf("importing a revision of another parent: %v\n%s", err, output)
	}
}
