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
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

func immortalContainer(t *testing.T, c *cluster.Cluster) {
	s := play(t, c, "immortal-container", "immortalcontainers-controller")
	const name = "example-immortalpod"
	var first corev1.Pod
	cluster.Eventually(t, limit, "the Pod", func(context.Context) (bool, string) {
		first = s.pods()[name]
		return first.UID != "", ""
	})
	if image := first.Spec.Containers[0].Image; image != "nginx:latest" {
		t.Errorf("the Pod runs %q", image)
	}
	s.awaitField("immortalcontainer/example", "{.status.currentPod}", name)
	// On the simulated node the Pod ends by itself, and must be replaced without anybody's doing.
	again := func(what string, before corev1.Pod) corev1.Pod {
		var after corev1.Pod
		cluster.Eventually(t, limit, "another Pod after "+what, func(context.Context) (bool, string) {
			after = s.pods()[name]
			return after.UID != "" && after.UID != before.UID, string(after.UID)
		})
		return after
	}
	second := again("the first has ended", first)
	if _, err := s.TryKubectl(t.Context(), "", "-n", s.namespace, "delete", "pod", name, "--wait=false"); err != nil {
		t.Logf("the Pod went by itself meanwhile: %v", err)
	}
	again("it was deleted", second)
	s.Kubectl(t, "-n", s.namespace, "patch", "immortalcontainer", "example", "--type=merge", "-p", `{"spec":{"image":"nginx:1.29"}}`)
	cluster.Eventually(t, limit, "a Pod of the new image", func(context.Context) (bool, string) {
		pod, ok := s.pods()[name]
		return ok && pod.Spec.Containers[0].Image == "nginx:1.29", fmt.Sprint(ok)
	})
}

func pythonLambda(t *testing.T, c *cluster.Cluster) {
	s := play(t, c, "python-lambda", "python-lambda-operator")
	counters := `{.status.configmaps} {.status.services} {.status.ingress} {.status.pods}`
	object := "pythonlambda/demo-python-lambda"
	s.awaitField(object, counters, "1 1 1 2")
	s.awaitField("ingress/demo-python-lambda", "{.spec.rules[0].host}", "example.com")
	if script := s.field(t.Context(), "configmap/demo-python-lambda", `{.data.script\.py}`); !strings.Contains(script, "reverse_name = name[::-1]") {
		t.Errorf("the script does not hold the code:\n%s", script)
	}
	patch := func(text string) { s.Kubectl(t, "-n", s.namespace, "patch", object, "--type=merge", "-p", text) }
	patch(`{"spec":{"replicas":4}}`)
	s.awaitField(object, counters, "1 1 1 4")
	patch(`{"spec":{"replicas":1}}`)
	s.awaitField(object, counters, "1 1 1 1")

	before := s.pods()["demo-python-lambda-0"]
	config := s.field(t.Context(), "configmap/demo-python-lambda", "{.metadata.uid}")
	service := s.field(t.Context(), "service/demo-python-lambda", "{.metadata.uid}")
	patch(`{"spec":{"code":"output = \"changed\"","host":"other.example.com"}}`)
	cluster.Eventually(t, limit, "another Pod for the changed code", func(context.Context) (bool, string) {
		pod := s.pods()["demo-python-lambda-0"]
		return pod.UID != "" && pod.UID != before.UID, string(pod.UID)
	})
	cluster.Eventually(t, limit, "another ConfigMap for the changed code", func(ctx context.Context) (bool, string) {
		uid := s.field(ctx, "configmap/demo-python-lambda", "{.metadata.uid}")
		return uid != config && uid != notFound, uid
	})
	s.awaitField("ingress/demo-python-lambda", "{.spec.rules[0].host}", "other.example.com")
	if now := s.field(t.Context(), "service/demo-python-lambda", "{.metadata.uid}"); now != service {
		t.Errorf("the Service was replaced although nothing of it changed: %s, then %s", service, now)
	}
	s.awaitField(object, counters, "1 1 1 1")
}

func podSet(t *testing.T, c *cluster.Cluster) {
	s := play(t, c, "pod-set", "podset-controller")
	s.awaitField("podset/web", "{.status.ready}", "5")
	watching, err := s.clients.Kube.CoreV1().Pods(s.namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []string
	var reader sync.WaitGroup
	reader.Go(func() {
		for e := range watching.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok && pod.Spec.Containers[0].Image == "nginx:1.29" {
				mu.Lock()
				if !slices.Contains(order, pod.Name) {
					order = append(order, pod.Name)
				}
				mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { watching.Stop(); reader.Wait() })
	s.Kubectl(t, "-n", s.namespace, "patch", "podset", "web", "--type=merge", "-p", `{"spec":{"image":"nginx:1.29"}}`)
	cluster.Eventually(t, limit, "all Pods to run the new image", func(context.Context) (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return len(order) == 5, fmt.Sprint(order)
	})
	mu.Lock()
	if want := []string{"web-4", "web-3", "web-2", "web-1", "web-0"}; !slices.Equal(order, want) {
		t.Errorf("Pods were replaced in the order %v, want %v", order, want)
	}
	mu.Unlock()
	s.awaitField("podset/web", "{.status.ready}", "5")
	s.awaitField("podset/web", `{.status.conditions[?(@.type=="Updated")].reason}`, "OnLatestRevision")
}
