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

package gitops

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/cache"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// TestGitOps has one control plane and one server, which is stopped at the end. With -short, which `make test` uses, each tool deploys one folder.
func TestGitOps(t *testing.T) {
	c := cluster.Shared(t)
	s := server.Start(t, c, server.Options{})
	clients := cluster.NewClients(t, c.Config(t))
	app := func(name string) *application { return &application{c, clients, name} }
	rows := map[string]func(*testing.T){
		"Argo CD applies server-side": func(t *testing.T) { deployedByArgoCD(t, app("argo-server"), true) },
		"Flux":                        func(t *testing.T) { deployedByFlux(t, app("flux")) },
	}
	if !testing.Short() {
		rows["Argo CD applies client-side"] = func(t *testing.T) { deployedByArgoCD(t, app("argo-client"), false) }
		rows["Flux, with controllers first"] = func(t *testing.T) { controllersFirst(t, app("flux-first")) }
		rows["health of controllers"] = func(t *testing.T) { healthOfControllers(t, app("health")) }
	}
	t.Run("with the server", func(t *testing.T) {
		for name, run := range rows {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t)
			})
		}
	})
	if !testing.Short() {
		t.Run("without the server", func(t *testing.T) { withoutServer(t, app("outage"), s) })
	}
}

// plain is an application without a kind of ours.
const plain = `
apiVersion: v1
kind: Namespace
metadata: {name: plain}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: plain}
data: {color: blue}
`

// withoutServer stops the server, and deploys what does not need it.
func withoutServer(t *testing.T, a *application, s *server.Server) {
	running := newArgoCD(t, a.Cluster, false)
	objects := func(color string) []*unstructured.Unstructured {
		return parse(t, strings.ReplaceAll(plain, "blue", color))
	}
	running.sync(t, "plain", objects("blue"))
	if err := s.Stop(); err != nil {
		t.Fatalf("stopping the server: %v", err)
	}
	cluster.Eventually(t, limit, "the cluster to see that the server is gone", func(ctx context.Context) (bool, string) {
		available, err := a.Field(ctx, "", "apiservice/v1alpha1.metacontroller.k8s.io", `{.status.conditions[?(@.type=="Available")].status}`)
		return available == "False" && err == nil, fmt.Sprintf("%s %v", available, err)
	})
	started := newArgoCD(t, a.Cluster, false)
	for name, argo := range map[string]*argoCD{"that was running": running, "that starts": started} {
		t.Run("an Argo CD "+name+" deploys what is not ours", func(t *testing.T) {
			color := strings.ReplaceAll(name, " ", "-")
			argo.sync(t, "plain", objects(color))
			argo.awaitInSync(t, "plain", objects(color))
		})
	}
	t.Run("Flux deploys what is not ours", func(t *testing.T) {
		flux := newFlux(t, a.Cluster)
		awaitCurrent(t, flux, applied(t, flux, "plain", objects("flux")))
	})
	t.Run("an application with our kinds is not taken for gone", func(t *testing.T) {
		deployed := &application{a.Cluster, a.Clients, "argo-client"}
		if pairs, err := started.compare(deployed.name, deployed.objects(t)); err == nil {
			t.Errorf("Argo CD compares it as if it knew the controllers: %v", pairs.Live)
		}
	})
	s.Restart()
	patch(t, a.composites(), "argo-client-pages", `{"metadata":{"annotations":{"seen":"again"}}}`)
	for name, argo := range map[string]*argoCD{"that was running": running, "that started meanwhile": started} {
		t.Run("an Argo CD "+name+" sees controllers again", func(t *testing.T) {
			cluster.Eventually(t, limit, "the change of a controller to be in the cache", func(context.Context) (bool, string) {
				found := argo.cache.FindResources("", func(r *cache.Resource) bool {
					return r.Ref.Kind == "CompositeController" && r.Resource.GetAnnotations()["seen"] == "again"
				})
				return len(found) == 1, fmt.Sprintf("%d controllers", len(found))
			})
		})
	}
}
