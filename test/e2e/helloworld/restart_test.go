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
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// many HelloWorlds are created in each of these tests.
const many = 15

// first is how many of them are there before the server is ended, while the others are created.
const first = 3

var helloWorlds = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "helloworlds"}

// create creates one of them.
func (s *scene) create(t *testing.T, client dynamic.Interface, i int) error {
	t.Helper()
	_, err := client.Resource(helloWorlds).Namespace(s.namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "HelloWorld", "metadata": map[string]any{"name": fmt.Sprintf("hello-%d", i)},
		"spec": map[string]any{"who": fmt.Sprintf("Number %d", i)},
	}}, metav1.CreateOptions{})
	return err
}

// whileItWorks creates HelloWorlds, and ends the server when it has work. It returns the Pods that there were then.
func (s *scene) whileItWorks(t *testing.T, end func()) map[string]corev1.Pod {
	t.Helper()
	client := cluster.NewClients(t, s.Config(t)).Dynamic
	for i := range first {
		if err := s.create(t, client, i); err != nil {
			t.Fatalf("creating a HelloWorld: %v", err)
		}
	}
	cluster.Eventually(t, limit, "the server to have begun", func(context.Context) (bool, string) {
		pods := len(s.pods(t))
		return pods > 0, fmt.Sprintf("%d Pods", pods)
	})
	begun, done := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(done)
		for i := first; i < many; i++ {
			if err := s.create(t, client, i); err != nil {
				done <- fmt.Errorf("creating a HelloWorld while the server works: %w", err)
			}
			if i == first {
				close(begun)
			}
		}
	}()
	<-begun
	end()
	before := s.pods(t)
	for err := range done {
		t.Fatal(err)
	}
	t.Logf("the server was ended with %d of %d Pods created", len(before), many)
	if len(before) == many {
		t.Fatal("nothing was left to do")
	}
	return before
}

// TestNothingIsLostWhenTheServerIsKilled kills the server with SIGKILL while it works, and starts it again on the same
// data directory: its etcd must come up with everything that it acknowledged, and the engine must go on without making
// anything twice.
func TestNothingIsLostWhenTheServerIsKilled(t *testing.T) {
	s := setUp(t)
	spec := s.definition(t)
	before := s.whileItWorks(t, s.server.Kill)
	s.server.Restart()

	s.awaitAll(t)
	for name, pod := range s.pods(t) {
		if old, ok := before[name]; ok && old.UID != pod.UID {
			t.Errorf("Pod %s was there before the restart and was made again", name)
		}
	}
	if got := s.definition(t); got != spec {
		t.Errorf("the controller is\n%s\nafter the restart, and was\n%s", got, spec)
	}
}

// stopLimit is more than the server takes to stop on a busy machine, on which its parts need all of the time that they are given: six
// seconds for controllers, and some more for requests under way and for etcd.
const stopLimit = 45 * time.Second

// TestTheServerStopsCleanly stops the server with SIGTERM while it works: it finishes what it has begun and exits with
// status 0 soon.
func TestTheServerStopsCleanly(t *testing.T) {
	s := setUp(t)
	s.whileItWorks(t, func() {
		began := time.Now()
		if err := s.server.Stop(); err != nil {
			t.Errorf("stopping the server: %v", err)
		}
		if took := time.Since(began); took > stopLimit {
			t.Errorf("the server took %s to stop, want at most %s", took, stopLimit)
		}
	})
	s.server.Restart()
	s.awaitAll(t)
}

// awaitAll waits until there is exactly one Pod for each HelloWorld, with its greeting.
func (s *scene) awaitAll(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, limit, "all Pods", func(context.Context) (bool, string) {
		pods := s.pods(t)
		return len(pods) >= many, fmt.Sprintf("%d Pods", len(pods))
	})
	pods := s.pods(t)
	if len(pods) != many {
		t.Errorf("there are %d Pods for %d HelloWorlds", len(pods), many)
	}
	for i := range many {
		name, want := fmt.Sprintf("hello-%d", i), fmt.Sprintf("Hello, Number %d!", i)
		pod, ok := pods[name]
		if !ok {
			t.Errorf("Pod %s is missing", name)
			continue
		}
		if got := pod.Spec.Containers[0].Command[1]; got != want {
			t.Errorf("Pod %s says %q, want %q", name, got, want)
		}
	}
}

// definition is the controller as the server stores it, without its status.
func (s *scene) definition(t *testing.T) string {
	t.Helper()
	return s.Kubectl(t, "get", "compositecontroller", "hello-controller", "-o", "jsonpath={.metadata.uid} {.metadata.generation} {.spec}")
}
