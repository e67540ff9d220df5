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

package helloworld

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/container"
	"github.com/metacontroller/metacontroller-apiserver/test/examplehook"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	// clusterHookURL is where the example's controller expects its hook inside a cluster.
	clusterHookURL = "http://hello-controller.hello/sync"
	limit          = cluster.Limit
)

func TestMain(m *testing.M) {
	if status, inside := container.Main(); inside {
		os.Exit(status)
	}
	os.Exit(cluster.Main(m))
}

// A scene is the example up to and including its controller, in a namespace of its own.
type scene struct {
	*cluster.Cluster
	kube      kubernetes.Interface
	server    *server.Server
	namespace string
}

// setUp follows the example's README, with the server's binary. Everything ends with the test.
func setUp(t *testing.T) *scene {
	t.Helper()
	return setUpWith(t, server.Options{})
}

// setUpWith is setUp with a server that is started in another way.
func setUpWith(t *testing.T, o server.Options) *scene {
	t.Helper()
	c := cluster.Shared(t)
	s := &scene{Cluster: c, kube: cluster.NewClients(t, c.Config(t)).Kube, server: server.Start(t, c, o), namespace: c.Namespace(t)}
	url := examplehook.Start(t, file("sync.py")) + "/sync"

	c.Kubectl(t, "apply", "-f", file("crd.yaml"))
	c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/helloworlds.example.com")
	manifest, err := os.ReadFile(file("controller.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	local := strings.Replace(string(manifest), clusterHookURL, url, 1)
	if local == string(manifest) {
		t.Fatalf("the example's controller does not have the hook's address %s", clusterHookURL)
	}
	c.KubectlInput(t, local, "apply", "-f", "-")
	t.Cleanup(func() {
		if t.Failed() {
			s.explain(t)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		for _, what := range []string{"compositecontroller/hello-controller", "crd/helloworlds.example.com"} {
			if output, err := c.TryKubectl(ctx, "", "delete", what, "--ignore-not-found"); err != nil {
				t.Errorf("cleaning up %s: %v\n%s", what, err, output)
			}
		}
	})
	return s
}

// explain shows what the cluster says about a scene that failed.
func (s *scene) explain(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	for _, args := range [][]string{
		{"get", "compositecontroller", "hello-controller", "-o", "yaml"},
		{"-n", s.namespace, "get", "helloworlds,pods,events"},
	} {
		output, err := s.TryKubectl(ctx, "", args...)
		t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// pods returns the namespace's Pods by name, those that are being deleted among them.
func (s *scene) pods(t *testing.T) map[string]corev1.Pod {
	t.Helper()
	list, err := s.kube.CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("listing the Pods: %v", err)
	}
	byName := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		byName[pod.Name] = pod
	}
	return byName
}

// file is the path of one of the example's files.
func file(name string) string {
	return filepath.Join(cluster.Root(), "artifacts", "examples", "hello-world", name)
}
