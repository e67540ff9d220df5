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

// Package availability holds docs/operations/availability.md to its word: what the rest of a cluster can and cannot do
// while the server is registered and down, and how it comes out of that. It holds tests only.
package availability

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	apiService = "v1alpha1.metacontroller.k8s.io"
	limit      = cluster.Limit
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// TestTheClusterWhileTheServerIsDown goes through the page from top to bottom.
func TestTheClusterWhileTheServerIsDown(t *testing.T) {
	c := cluster.Shared(t)
	running := server.Start(t, c, server.Options{})
	namespace := c.Namespace(t)
	ownerAndDependent(t, c, namespace)

	if err := running.Stop(); err != nil {
		t.Fatalf("stopping the server: %v", err)
	}
	c.Kubectl(t, "wait", "--for=condition=Available=False", "--timeout="+limit.String(), "apiservice/"+apiService)

	// Other groups answer.
	c.Kubectl(t, "-n", namespace, "get", "pods")
	c.Kubectl(t, "-n", namespace, "create", "configmap", "unrelated")

	// Ours is refused at once.
	output, err := c.TryKubectl(t.Context(), "", "get", "--raw", "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers")
	if err == nil || !strings.Contains(output, "unable to handle the request") {
		t.Errorf("got %v and %q from our group, want it unavailable", err, output)
	}

	// The garbage collector goes on with what it knew.
	c.Kubectl(t, "-n", namespace, "delete", "configmap", "owner")
	awaitGone(t, c, namespace, "configmap/dependent")

	// Namespaces are made, and do not finish deleting.
	deleteNamespace(t, c, "while-down")
	running.Restart()
	awaitGone(t, c, "", "namespace/while-down")

	// The way out in an emergency.
	if err := running.Stop(); err != nil {
		t.Fatalf("stopping the server again: %v", err)
	}
	c.Kubectl(t, "wait", "--for=condition=Available=False", "--timeout="+limit.String(), "apiservice/"+apiService)
	deleteNamespace(t, c, "in-an-emergency")
	c.Kubectl(t, "delete", "apiservice", apiService)
	awaitGone(t, c, "", "namespace/in-an-emergency")
}

// ownerAndDependent makes two ConfigMaps, of which one owns the other.
func ownerAndDependent(t *testing.T, c *cluster.Cluster, namespace string) {
	t.Helper()
	c.Kubectl(t, "-n", namespace, "create", "configmap", "owner")
	uid := c.Kubectl(t, "-n", namespace, "get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
	c.KubectlInput(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dependent","ownerReferences":[
		{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"`+uid+`"}]}}`, "-n", namespace, "create", "-f", "-")
}

// deleteNamespace makes and deletes a namespace, and waits until its conditions say that our group is why it stays.
func deleteNamespace(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	c.Kubectl(t, "create", "namespace", name)
	c.Kubectl(t, "delete", "namespace", name, "--wait=false")
	cluster.Eventually(t, limit, "the namespace to say why it stays", func(ctx context.Context) (bool, string) {
		got, err := c.Field(ctx, "", "namespace/"+name, `{.status.conditions[?(@.type=="NamespaceDeletionDiscoveryFailure")]}`)
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(got, `"status":"True"`) && strings.Contains(got, "metacontroller.k8s.io/v1alpha1"), got
	})
}

// awaitGone waits until there is no such object.
func awaitGone(t *testing.T, c *cluster.Cluster, namespace, object string) {
	t.Helper()
	cluster.Eventually(t, limit, object+" to be gone", func(ctx context.Context) (bool, string) {
		name, err := c.Field(ctx, namespace, object, "{.metadata.name}")
		return apierrors.IsNotFound(err), fmt.Sprintf("%q %v", name, err)
	})
}
