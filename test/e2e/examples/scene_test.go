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
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	// hookLine is how a hook begins the line that tells its port.
	hookLine = "hook listens on port "
	// limit is more than anything here takes on a busy machine.
	limit = time.Minute
)

// clusterURL is where an example's controller expects its hook inside a cluster.
var clusterURL = regexp.MustCompile(`http://[a-z.-]+/sync`)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

func TestExamples(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	t.Run("ImmortalContainer", func(t *testing.T) { immortalContainer(t, c) })
	t.Run("PythonLambda", func(t *testing.T) { pythonLambda(t, c) })
	t.Run("PodSet", func(t *testing.T) { podSet(t, c) })
}

// scene is an example with its controller running and its sample object applied.
type scene struct {
	*cluster.Cluster
	t         *testing.T
	namespace string
}

func play(t *testing.T, c *cluster.Cluster, example, controller string) *scene {
	t.Helper()
	folder := filepath.Join(cluster.Root(), "artifacts", "examples", example)
	s := &scene{Cluster: c, t: t, namespace: c.Namespace(t)}
	manifest, err := os.ReadFile(filepath.Join(folder, "controller.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	url := startHook(t, folder)
	local := clusterURL.ReplaceAllString(string(manifest), url)
	if !strings.Contains(local, url) {
		t.Fatalf("the controller of %s has no address of a hook", example)
	}
	c.Kubectl(t, "apply", "-f", filepath.Join(folder, "crd.yaml"))
	c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "-f", filepath.Join(folder, "crd.yaml"))
	c.KubectlInput(t, local, "apply", "-f", "-")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		if t.Failed() {
			output, err := c.TryKubectl(ctx, "", "-n", s.namespace, "get", "all,events")
			t.Logf("%v\n%s", err, output)
		}
		for _, args := range [][]string{{"delete", "compositecontroller", controller}, {"delete", "-f", filepath.Join(folder, "crd.yaml")}} {
			if output, err := c.TryKubectl(ctx, "", args...); err != nil {
				t.Errorf("cleaning up: %v\n%s", err, output)
			}
		}
	})
	c.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "compositecontroller/"+controller)
	c.Kubectl(t, "-n", s.namespace, "apply", "-f", filepath.Join(folder, "example.yaml"))
	return s
}

// startHook runs an example's hook and returns its address.
func startHook(t *testing.T, folder string) string {
	t.Helper()
	command := process.Command(t.Context(), "python3", filepath.Join(folder, "sync.py"), "0")
	command.Env = append(os.Environ(), "HOST=127.0.0.1")
	hook, err := process.Start(command, process.Options{
		Name: "the hook", Log: filepath.Join(t.TempDir(), "hook.log"),
		Wanted: func(line string) bool { return strings.HasPrefix(line, hookLine) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hook.Stop(limit); err != nil {
			t.Errorf("stopping the hook: %v", err)
		}
	})
	line, err := hook.Line(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return "http://localhost:" + strings.TrimPrefix(line, hookLine) + "/sync"
}

// field reads a field of an object with a JSON path.
func (s *scene) field(ctx context.Context, object, path string) string {
	output, err := s.TryKubectl(ctx, "", "-n", s.namespace, "get", object, "-o", "jsonpath="+path)
	if err != nil {
		return err.Error() + " " + output
	}
	return output
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
	var list corev1.PodList
	if err := json.Unmarshal([]byte(s.Kubectl(s.t, "-n", s.namespace, "get", "pods", "-o", "json")), &list); err != nil {
		s.t.Fatalf("reading the list of Pods: %v", err)
	}
	byName := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			byName[pod.Name] = pod
		}
	}
	return byName
}
