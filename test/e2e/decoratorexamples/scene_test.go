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

package decoratorexamples

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/examplehook"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const limit = cluster.Limit

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// A scene is one example up to and including its controller, and a namespace to try it in.
type scene struct {
	*cluster.Cluster
	kube      kubernetes.Interface
	example   string
	namespace string
}

// TestExamples runs each example in a namespace of its own, with one server for all.
func TestExamples(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	kube := cluster.NewClients(t, c.Config(t)).Kube
	for _, e := range []struct {
		example, hook string
		run           func(*testing.T, *scene)
	}{
		{"config-monitor", "hooks.py", configMonitor},
		{"service-per-pod", "sync.py", servicePerPod},
		{"default-network-policy", "hooks.py", defaultNetworkPolicy},
	} {
		t.Run(e.example, func(t *testing.T) {
			s := &scene{Cluster: c, kube: kube, example: e.example, namespace: c.Namespace(t)}
			s.setUp(t, e.hook)
			e.run(t, s)
		})
	}
}

// setUp starts the example's hook and applies its controller, with the hook's address in place of the Service's.
func (s *scene) setUp(t *testing.T, hook string) {
	t.Helper()
	if crd := s.file("crd.yaml"); exists(crd) {
		s.Kubectl(t, "apply", "-f", crd)
		s.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "-f", crd)
	}
	manifest, err := os.ReadFile(s.file("controller.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	inCluster := "http://" + s.example + "." + s.example
	if !strings.Contains(string(manifest), inCluster) {
		t.Fatalf("the example's controller does not have its hook's address %s", inCluster)
	}
	local := strings.ReplaceAll(string(manifest), inCluster, examplehook.Start(t, s.file(hook)))
	s.KubectlInput(t, local, "apply", "-f", "-")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		if t.Failed() {
			for _, args := range [][]string{
				{"get", "decoratorcontroller", s.example, "-o", "yaml"}, {"-n", s.namespace, "get", "pods,events"},
			} {
				output, err := s.TryKubectl(ctx, "", args...)
				t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
			}
		}
		if output, err := s.TryKubectl(ctx, "", "delete", "decoratorcontroller", s.example); err != nil {
			t.Errorf("deleting the controller: %v\n%s", err, output)
		}
	})
	s.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "decoratorcontroller/"+s.example)
}

// file is the path of one of the example's files.
func (s *scene) file(name string) string {
	return filepath.Join(cluster.Root(), "artifacts", "examples", s.example, name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
