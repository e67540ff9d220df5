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
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// many HelloWorlds are created in each of these tests.
const many = 50

// manifests is a list of HelloWorlds, hello-0 and so on.
func manifests() string {
	var b strings.Builder
	for i := range many {
		fmt.Fprintf(&b, "---\napiVersion: example.com/v1\nkind: HelloWorld\nmetadata:\n  name: hello-%d\nspec:\n  who: Number %d\n", i, i)
	}
	return b.String()
}

// TestNothingIsLostWhenTheServerIsKilled kills the server with SIGKILL while it works, and starts it again on the same
// data directory: its etcd must come up with everything that it acknowledged, and the engine must go on without making
// anything twice.
func TestNothingIsLostWhenTheServerIsKilled(t *testing.T) {
	s := setUp(t)
	spec := s.definition(t)
	s.KubectlInput(t, manifests(), "-n", s.namespace, "create", "-f", "-")
	cluster.Eventually(t, limit, "the server to have begun", func(context.Context) (bool, string) {
		pods := len(s.pods(t))
		return pods > 0, fmt.Sprintf("%d Pods", pods)
	})

	s.server.Kill()
	before := s.pods(t)
	t.Logf("killed with %d of %d Pods created", len(before), many)
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
const stopLimit = 25 * time.Second

// TestTheServerStopsCleanly stops the server with SIGTERM while it works: it finishes what it has begun and exits with
// status 0 soon.
func TestTheServerStopsCleanly(t *testing.T) {
	s := setUp(t)
	s.KubectlInput(t, manifests(), "-n", s.namespace, "create", "-f", "-")

	began := time.Now()
	if err := s.server.Stop(); err != nil {
		t.Errorf("stopping the server: %v", err)
	}
	if took := time.Since(began); took > stopLimit {
		t.Errorf("the server took %s to stop, want at most %s", took, stopLimit)
	}
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
