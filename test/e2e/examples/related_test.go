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
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// copyToNamespaces runs the sample, and follows it through changes of labels and of the source.
func copyToNamespaces(t *testing.T, c *cluster.Cluster) {
	s := stage(t, c, "copy-to-namespaces", "copy-to-namespaces", "hooks.py")
	chosen, taken, late, never := s.namespace, c.Namespace(t), c.Namespace(t), c.Namespace(t)
	const object, label = "objectcopy/ca-bundle", "example.com/ca-bundle"
	const counters = "{.status.sourceFound} {.status.namespaces} {.status.copies}"
	s.Kubectl(t, "-n", taken, "create", "configmap", "ca-bundle", "--from-literal=ca.crt=made by hand")
	s.Kubectl(t, "label", "namespace", chosen, taken, label+"=wanted")
	s.Kubectl(t, "apply", "-f", s.file("example.yaml"))
	s.awaitCopy(chosen, "The certificate of our authority")
	s.awaitField(object, counters+" {.status.missing}", `true 2 1 ["`+taken+`"]`)
	s.awaitEvent("ObjectCopy", "ca-bundle", "ConfigMap "+taken+"/ca-bundle exists and is not controlled by")

	s.Kubectl(t, "label", "namespace", late, label+"=wanted")
	s.awaitCopy(late, "The certificate of our authority")
	s.awaitField(object, counters, "true 3 2")

	s.Kubectl(t, "-n", "default", "patch", "configmap", "ca-bundle", "-p", `{"data":{"ca.crt":"Its successor"}}`)
	s.awaitCopy(chosen, "Its successor")
	s.awaitCopy(late, "Its successor")

	s.Kubectl(t, "label", "namespace", chosen, label+"-")
	s.awaitCopy(chosen, notFound)
	s.awaitField(object, counters, "true 2 1")

	s.Kubectl(t, "-n", "default", "delete", "configmap", "ca-bundle")
	s.awaitCopy(late, notFound)
	s.awaitField(object, counters, "false 2 0")
	s.awaitCopy(taken, "made by hand")
	s.awaitCopy(never, notFound)
	copySecret(s, chosen, never)
}

// copySecret does the same with a Secret, and without a conflict: there are no retries here, only events.
func copySecret(s *scene, from, to string) {
	s.t.Helper()
	s.Kubectl(s.t, "-n", from, "create", "secret", "generic", "login", "--type=kubernetes.io/basic-auth",
		"--from-literal=username=jane", "--from-literal=password=secret")
	s.KubectlInput(s.t, `{"apiVersion":"example.com/v1","kind":"ObjectCopy","metadata":{"name":"login"},"spec":{
		"source":{"kind":"Secret","namespace":"`+from+`","name":"login"},
		"namespaceSelector":{"matchExpressions":[{"key":"example.com/login","operator":"Exists"}]}}}`, "apply", "-f", "-")
	await := func(namespaces int, want string) {
		s.t.Helper()
		s.awaitIn(to, "secret/login", "{.type} {.data.username} {.data.password}", want)
		s.awaitField("objectcopy/login", "{.status.namespaces} {.status.copies}", fmt.Sprint(namespaces, namespaces))
	}
	await(0, notFound)
	s.Kubectl(s.t, "label", "namespace", from, to, "example.com/login=")
	await(1, "kubernetes.io/basic-auth amFuZQ== c2VjcmV0")
	s.Kubectl(s.t, "-n", from, "patch", "secret", "login", "--type=merge", "-p", `{"data":{"username":null,"password":"b3RoZXI="}}`)
	await(1, "kubernetes.io/basic-auth  b3RoZXI=")
	s.Kubectl(s.t, "label", "namespace", to, "example.com/login-")
	await(0, notFound)
}

// jobPerNode runs the sample on the node that is there, on one that comes, and on it no more when it goes.
func jobPerNode(t *testing.T, c *cluster.Cluster) {
	s := stage(t, c, "job-per-node", "job-per-node", "hooks.py")
	const object, counters = "nodejob/pull-image", "{.status.nodes} {.status.active} {.status.succeeded} {.status.failed}"
	s.Kubectl(t, "-n", s.namespace, "apply", "-f", s.file("example.yaml"))
	s.awaitField(object, counters, "1 0 1 0")
	first := s.field(t.Context(), "job/pull-image-kwok-node-0", "{.metadata.uid}")

	// The taint keeps the Pods of the other examples away.
	node := func(name, system string) {
		s.KubectlInput(t, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+name+`","labels":{"kubernetes.io/os":"`+system+`"}},
			"spec":{"taints":[{"key":"reserved","effect":"NoSchedule"}]},
			"status":{"allocatable":{"cpu":"8","memory":"8Gi","pods":"100"},"capacity":{"cpu":"8","memory":"8Gi","pods":"100"}}}`,
			"create", "-f", "-")
	}
	node("late.example.com", "linux")
	node("other", "windows")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		if output, err := s.TryKubectl(ctx, "", "delete", "node", "--ignore-not-found", "late.example.com", "other"); err != nil {
			t.Errorf("cleaning up: %v\n%s", err, output)
		}
	})
	s.awaitField(object, counters, "2 0 2 0")
	jobs := strings.Fields(s.field(t.Context(), "jobs", `{.items[*].metadata.annotations.example\.com/node}`))
	slices.Sort(jobs)
	if want := []string{"kwok-node-0", "late.example.com"}; !slices.Equal(jobs, want) {
		t.Errorf("there are Jobs for the nodes %v, want %v", jobs, want)
	}
	for _, pod := range s.pods() {
		if job := pod.Labels[batchv1.JobNameLabel]; s.field(t.Context(), "job/"+job, `{.metadata.annotations.example\.com/node}`) != pod.Spec.NodeName {
			t.Errorf("Pod %s of Job %s ran on %s", pod.Name, job, pod.Spec.NodeName)
		}
	}

	s.Kubectl(t, "delete", "node", "late.example.com")
	s.awaitField(object, counters, "1 0 1 0")
	s.awaitField("jobs", "{.items[*].metadata.name}", "pull-image-kwok-node-0")
	if now := s.field(t.Context(), "job/pull-image-kwok-node-0", "{.metadata.uid}"); now != first {
		t.Errorf("the Job of the first node was made anew although nothing of it changed: %s, then %s", first, now)
	}
	s.Kubectl(t, "label", "node", "other", "--overwrite", "kubernetes.io/os=linux")
	s.awaitField(object, counters, "2 0 2 0")

	s.jobPerNodeRunsAgain(first)
}

// jobPerNodeRunsAgain changes the template, and tries one that the kind refuses.
func (s *scene) jobPerNodeRunsAgain(first string) {
	s.t.Helper()
	patch := func(text string) (string, error) {
		return s.TryKubectl(s.t.Context(), "", "-n", s.namespace, "patch", "nodejob", "pull-image", "--type=merge", "-p", text)
	}
	output, err := patch(`{"spec":{"jobTemplate":{"spec":{"ttlSecondsAfterFinished":5}}}}`)
	if err == nil || !strings.Contains(output, "would be created and run again") {
		s.t.Errorf("a template with ttlSecondsAfterFinished: %v\n%s", err, output)
	}
	if output, err := patch(`{"spec":{"jobTemplate":{"spec":{"backoffLimit":1}}}}`); err != nil {
		s.t.Fatalf("%v\n%s", err, output)
	}
	cluster.Eventually(s.t, limit, "another Job", func(ctx context.Context) (bool, string) {
		uid := s.field(ctx, "job/pull-image-kwok-node-0", "{.metadata.uid}")
		return uid != first && uid != notFound, uid
	})
	s.awaitField("nodejob/pull-image", "{.status.nodes} {.status.succeeded}", "2 2")
}

// awaitCopy waits until a namespace has the ConfigMap ca-bundle with that certificate, or not at all: notFound.
func (s *scene) awaitCopy(namespace, want string) {
	s.t.Helper()
	s.awaitIn(namespace, "configmap/ca-bundle", `{.data.ca\.crt}`, want)
}

// awaitIn waits until a field of an object in a namespace has a value, or until there is no such object.
func (s *scene) awaitIn(namespace, object, path, want string) {
	s.t.Helper()
	cluster.Eventually(s.t, limit, object+" in "+namespace+" to be "+want, func(ctx context.Context) (bool, string) {
		got := s.fieldIn(ctx, namespace, object, path)
		return got == want, got
	})
}

// awaitEvent waits for an event about an object, whose message holds the text.
func (s *scene) awaitEvent(kind, name, text string) {
	s.t.Helper()
	cluster.Eventually(s.t, limit, "the event: "+text, func(ctx context.Context) (bool, string) {
		events, err := s.clients.Kube.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name})
		if err != nil {
			return false, err.Error()
		}
		var seen strings.Builder
		for i := range events.Items {
			seen.WriteString(events.Items[i].Type + " " + events.Items[i].Message + "\n")
		}
		return strings.Contains(seen.String(), text), seen.String()
	})
}
