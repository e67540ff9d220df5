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

// Package examples runs the examples under artifacts/examples from end to end, with the real kubectl and the hooks as they
// stand there. HelloWorld has a package of its own.
package examples

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/examplehook"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

func immortalContainer(t *testing.T, c *cluster.Cluster, manifest string) {
	s := play(t, c, manifest, "immortal-container", "immortalcontainers-controller")
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

func pythonLambda(t *testing.T, c *cluster.Cluster, manifest string) {
	s := play(t, c, manifest, "python-lambda", "python-lambda-operator")
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

func podSet(t *testing.T, c *cluster.Cluster, manifest string) {
	s := play(t, c, manifest, "pod-set", "podset-controller")
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

// copyToNamespaces runs the sample, and follows it through changes of labels and of the source.
func copyToNamespaces(t *testing.T, c *cluster.Cluster, manifest string) {
	s := stage(t, c, manifest, "copy-to-namespaces", "compositecontroller/copy-to-namespaces", "hooks.py")
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
	// The namespaces stay, and must not be those of another controller's parents.
	s.Kubectl(t, "label", "namespace", taken, late, label+"-")
	s.Kubectl(t, "label", "namespace", chosen, "example.com/login-")
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
func jobPerNode(t *testing.T, c *cluster.Cluster, manifest string) {
	s := stage(t, c, manifest, "job-per-node", "compositecontroller/job-per-node", "hooks.py")
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

// scene is an example with its controller running, and a namespace to try it in.
type scene struct {
	*cluster.Cluster
	t                 *testing.T
	clients           *cluster.Clients
	folder, namespace string
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

const limit = cluster.Limit

// clusterURL is where an example's controller expects its hooks inside a cluster, without the path.
var clusterURL = regexp.MustCompile(`http://[a-z.-]+/`)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

func TestExamples(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	for name, run := range map[string]func(t *testing.T, c *cluster.Cluster, manifest string){
		"ImmortalContainer": immortalContainer, "PythonLambda": pythonLambda, "PodSet": podSet,
		"CopyToNamespaces": copyToNamespaces, "JobPerNode": jobPerNode,
		"ConfigMonitor": configMonitor, "ServicePerPod": servicePerPod, "DefaultNetworkPolicy": defaultNetworkPolicy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("Webhook", func(t *testing.T) { run(t, c, webhook) })
			t.Run("Inline", func(t *testing.T) { run(t, c, "inline.yaml") })
		})
	}
}

// play sets the scene and applies the example's sample object.
func play(t *testing.T, c *cluster.Cluster, manifest, example, controller string) *scene {
	t.Helper()
	s := stage(t, c, manifest, example, "compositecontroller/"+controller, "sync.py")
	s.Kubectl(t, "-n", s.namespace, "apply", "-f", s.file("example.yaml"))
	return s
}

// webhook is the manifest of an example's controller whose hooks are a process. The controller of inline.yaml needs none.
const webhook = "controller.yaml"

// stage starts the hooks of an example and applies its kind, if it has one, and its controller, named as kubectl has it.
func stage(t *testing.T, c *cluster.Cluster, manifest, example, controller, script string) *scene {
	t.Helper()
	folder := filepath.Join(cluster.Root(), "artifacts", "examples", example)
	s := &scene{Cluster: c, t: t, clients: cluster.NewClients(t, c.Config(t)), folder: folder, namespace: c.Namespace(t)}
	definition, err := os.ReadFile(s.file(manifest))
	if errors.Is(err, fs.ErrNotExist) && manifest != webhook {
		t.Skip("the hooks of this example need a programming language")
	}
	if err != nil {
		t.Fatal(err)
	}
	local := string(definition)
	if manifest == webhook {
		url := examplehook.Start(t, s.file(script)) + "/"
		if local = clusterURL.ReplaceAllString(local, url); !strings.Contains(local, url) {
			t.Fatalf("the controller of %s has no address of a hook", example)
		}
	}
	made := [][]string{{controller}}
	if _, err := os.Stat(s.file("crd.yaml")); err == nil {
		made = append(made, []string{"-f", s.file("crd.yaml")})
		c.Kubectl(t, "apply", "-f", s.file("crd.yaml"))
		c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "-f", s.file("crd.yaml"))
	}
	c.KubectlInput(t, local, "apply", "-f", "-")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		if t.Failed() {
			output, err := c.TryKubectl(ctx, "", "-n", s.namespace, "get", "all,events")
			t.Logf("%v\n%s", err, output)
		}
		for _, each := range made {
			if output, err := c.TryKubectl(ctx, "", append([]string{"delete"}, each...)...); err != nil {
				t.Errorf("cleaning up: %v\n%s", err, output)
			}
		}
	})
	c.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", controller)
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
