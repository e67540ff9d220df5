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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// TestHelloWorld is the tutorial, from the first object to the garbage collector.
func TestHelloWorld(t *testing.T) {
	follow(t, setUp(t))
}

// follow does and sees what the tutorial says.
func follow(t *testing.T, s *scene) {
	t.Helper()
	s.Kubectl(t, "-n", s.namespace, "apply", "-f", file("hello.yaml"))

	first := s.awaitGreeting(t, "your-name", "Hello, Your Name!")
	owner := metav1.GetControllerOf(&first)
	uid := s.Kubectl(t, "-n", s.namespace, "get", "helloworld", "your-name", "-o", "jsonpath={.metadata.uid}")
	if owner == nil || owner.Kind != "HelloWorld" || string(owner.UID) != uid {
		t.Errorf("the Pod's controller is %v, want the HelloWorld with uid %s", owner, uid)
	}
	if got := first.Labels["controller-uid"]; got != uid {
		t.Errorf("the Pod's label controller-uid is %q, want the parent's uid %s: generateSelector is true", got, uid)
	}
	s.awaitStatus(t, "your-name", "pods=1 observedGeneration=1")

	// Pods cannot change their command, and the strategy is Recreate.
	s.Kubectl(t, "-n", s.namespace, "patch", "helloworld", "your-name", "--type=merge", "-p", `{"spec":{"who":"My Name"}}`)
	second := s.awaitGreeting(t, "your-name", "Hello, My Name!")
	if second.UID == first.UID {
		t.Errorf("the Pod with the new greeting has the uid of the old one, %s", first.UID)
	}
	s.awaitStatus(t, "your-name", "pods=1 observedGeneration=2")

	s.Kubectl(t, "-n", s.namespace, "delete", "helloworld", "your-name")
	cluster.Eventually(t, limit, "the garbage collector to remove the Pod", func(context.Context) (bool, string) {
		pods := s.pods(t)
		return len(pods) == 0, fmt.Sprintf("%d Pods", len(pods))
	})
}

// TestAHelloWorldWithoutWho shows the default that the hook, not the server, has chosen.
func TestAHelloWorldWithoutWho(t *testing.T) {
	s := setUp(t)
	s.KubectlInput(t, `{"apiVersion":"example.com/v1","kind":"HelloWorld","metadata":{"name":"nobody"}}`, "-n", s.namespace, "apply", "-f", "-")
	s.awaitGreeting(t, "nobody", "Hello, World!")
}

// awaitGreeting waits until a Pod echoes the greeting and has run to its end, and returns it.
func (s *scene) awaitGreeting(t *testing.T, name, greeting string) (found corev1.Pod) {
	t.Helper()
	cluster.Eventually(t, limit, fmt.Sprintf("Pod %s to say %q", name, greeting), func(context.Context) (bool, string) {
		pod, ok := s.pods(t)[name]
		if !ok {
			return false, "no such Pod"
		}
		found = pod
		command := strings.Join(pod.Spec.Containers[0].Command, " ")
		return command == "echo "+greeting && pod.Status.Phase == corev1.PodSucceeded, fmt.Sprintf("phase %s, command %q", pod.Status.Phase, command)
	})
	return found
}

// awaitStatus waits until the parent's status is what the hook answered, and of the generation that it answered for.
func (s *scene) awaitStatus(t *testing.T, name, want string) {
	t.Helper()
	cluster.Eventually(t, limit, "the status "+want, func(ctx context.Context) (bool, string) {
		got, err := s.Field(ctx, s.namespace, "helloworld/"+name, "pods={.status.pods} observedGeneration={.status.observedGeneration}")
		return err == nil && got == want, fmt.Sprintf("%s %v", got, err)
	})
}
