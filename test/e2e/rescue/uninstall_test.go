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
