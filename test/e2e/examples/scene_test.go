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

package examples

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/examplehook"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const limit = cluster.Limit

// clusterURL is where an example's controller expects its hooks inside a cluster, without the path.
var clusterURL = regexp.MustCompile(`http://[a-z.-]+/`)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

func TestExamples(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	for name, run := range map[string]func(*testing.T, *cluster.Cluster){
		"ImmortalContainer": immortalContainer, "PythonLambda": pythonLambda, "PodSet": podSet,
		"CopyToNamespaces": copyToNamespaces, "JobPerNode": jobPerNode,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}

// scene is an example with its controller running, and a namespace to try it in.
type scene struct {
	*cluster.Cluster
	t                 *testing.T
	clients           *cluster.Clients
	folder, namespace string
}

// play sets the scene and applies the example's sample object.
func play(t *testing.T, c *cluster.Cluster, example, controller string) *scene {
	t.Helper()
	s := stage(t, c, example, controller, "sync.py")
	s.Kubectl(t, "-n", s.namespace, "apply", "-f", s.file("example.yaml"))
	return s
}

// stage starts the hooks of an example and applies its kind and its controller.
func stage(t *testing.T, c *cluster.Cluster, example, controller, script string) *scene {
	t.Helper()
	folder := filepath.Join(cluster.Root(), "artifacts", "examples", example)
	s := &scene{Cluster: c, t: t, clients: cluster.NewClients(t, c.Config(t)), folder: folder, namespace: c.Namespace(t)}
	manifest, err := os.ReadFile(s.file("controller.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	url := examplehook.Start(t, s.file(script)) + "/"
	local := clusterURL.ReplaceAllString(string(manifest), url)
	if !strings.Contains(local, url) {
		t.Fatalf("the controller of %s has no address of a hook", example)
	}
	c.Kubectl(t, "apply", "-f", s.file("crd.yaml"))
	c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "-f", s.file("crd.yaml"))
	c.KubectlInput(t, local, "apply", "-f", "-")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		if t.Failed() {
			output, err := c.TryKubectl(ctx, "", "-n", s.namespace, "get", "all,events")
			t.Logf("%v\n%s", err, output)
		}
		for _, args := range [][]string{{"delete", "compositecontroller", controller}, {"delete", "-f", s.file("crd.yaml")}} {
			if output, err := c.TryKubectl(ctx, "", args...); err != nil {
				t.Errorf("cleaning up: %v\n%s", err, output)
			}
		}
	})
	c.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "compositecontroller/"+controller)
	return s
}

// file is the path of one of the example's files.
func (s *scene) file(name string) string { return filepath.Join(s.folder, name) }

// notFound is what field returns of an object that is not there.
const notFound = "NotFound"

// field reads a field of an object with a JSON path.
func (s *scene) field(ctx context.Context, object, path string) string {
	return s.fieldIn(ctx, s.namespace, object, path)
}

func (s *scene) fieldIn(ctx context.Context, namespace, object, path string) string {
	printed, err := s.Field(ctx, namespace, object, path)
	if apierrors.IsNotFound(err) {
		return notFound
	}
	if err != nil {
		return err.Error()
	}
	return printed
}

// awaitField waits until a field of an object has a value.
func (s *scene) awaitField(object, path, want string) {
	s.t.Helper()
	cluster.Eventually(s.t, limit, object+" "+path+" to be "+want, func(ctx context.Context) (bool, string) {
		got := s.field(ctx, object, path)
		return got == want, got
	})
}

// pods returns the Pods of the namespace by name, without those that are being deleted.
func (s *scene) pods() map[string]corev1.Pod {
	s.t.Helper()
	list, err := s.clients.Kube.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatalf("listing the Pods: %v", err)
	}
	byName := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			byName[pod.Name] = pod
		}
	}
	return byName
}
