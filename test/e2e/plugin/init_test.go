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

package plugin

import (
	"context"
	"fmt"
	"os/exec"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

// begin goes from an empty folder to a Deployment in four commands, and to a changed one with a fifth, in each language.
func begin(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for language, run := range map[string]string{"python": "python3 hook.py", "javascript": "node main.js", "go": "go run ."} {
		t.Run(language, func(t *testing.T) {
			if _, err := exec.LookPath("node"); err != nil && language == "javascript" {
				t.Skip("node is not installed")
			}
			s := terminal.New(t, c)
			namespace := c.Namespace(t)
			s.Must(t, "kubectl metacontroller init begun --lang "+language+" --parent Shop."+language+".example.com --child deployments,services")
			s.Start(t, "cd begun && exec "+run)
			s.Must(t, "kubectl apply -k begun/manifests/local")
			t.Cleanup(func() { remove(t, c, "compositecontroller/begun", "crd/shops."+language+".example.com") })
			s.Must(t, "kubectl wait --for=condition=Established crd/shops."+language+".example.com && kubectl -n "+namespace+" apply -f begun/example.yaml")
			awaitReplicas(t, c, namespace, "example", 2)

			s.Must(t, fmt.Sprintf(`kubectl -n %s patch shops.%s.example.com example --type=merge -p '{"spec":{"replicas":3}}'`, namespace, language))
			awaitReplicas(t, c, namespace, "example", 3)
		})
	}
}

// beginADecorator shows that a decorator adds to what is there and asks for it, and to nothing else.
func beginADecorator(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	s := terminal.New(t, c)
	namespace := c.Namespace(t)
	s.Must(t, "kubectl metacontroller init budget --decorator --parent Deployment.apps --child poddisruptionbudgets")
	s.Start(t, "cd budget && exec python3 hook.py")
	s.Must(t, "kubectl apply -k budget/manifests/local")
	t.Cleanup(func() { remove(t, c, "decoratorcontroller/budget") })
	for _, name := range []string{"asks", "other"} {
		s.Must(t, fmt.Sprintf("kubectl -n %s create deployment %s --image=nginx:1.29", namespace, name))
	}
	s.Must(t, fmt.Sprintf("kubectl -n %s annotate deployment asks budget=enabled", namespace))
	cluster.Eventually(t, terminal.Patience, "the PodDisruptionBudget of the Deployment that asks", func(ctx context.Context) (bool, string) {
		got, err := c.Field(ctx, namespace, "poddisruptionbudgets", "{.items[*].metadata.name} {.items[*].spec.selector.matchLabels.app}")
		return err == nil && got == "asks-budget asks", fmt.Sprintf("%s %v", got, err)
	})
}

// awaitReplicas waits until a Deployment has so many replicas.
func awaitReplicas(t *testing.T, c *cluster.Cluster, namespace, name string, want int) {
	t.Helper()
	cluster.Eventually(t, terminal.Patience, fmt.Sprintf("%d replicas", want), func(ctx context.Context) (bool, string) {
		got, err := c.Field(ctx, namespace, "deployment/"+name, "{.spec.replicas}")
		return err == nil && got == fmt.Sprint(want), fmt.Sprintf("%s %v", got, err)
	})
}

// remove deletes objects after a test.
func remove(t *testing.T, c *cluster.Cluster, objects ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), terminal.Patience)
	defer cancel()
	for _, object := range objects {
		if output, err := c.TryKubectl(ctx, "", "delete", object, "--ignore-not-found"); err != nil {
			t.Errorf("deleting %s: %v\n%s", object, err, output)
		}
	}
}
