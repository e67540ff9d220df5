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

// Package helloworld runs the example artifacts/examples/hello-world from end to end: a real control plane, the server's
// binary, the example's own files and hook, and kubectl. It holds tests only.
package helloworld

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/container"
	"github.com/metacontroller/metacontroller-apiserver/test/examplehook"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
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

// TestInlineHelloWorld is the same with the hook in the controller, which takes the place of the webhook: no process but the server's makes
// the Pods.
func TestInlineHelloWorld(t *testing.T) {
	s := prepare(t, server.Options{})
	s.defineKind(t)
	s.Kubectl(t, "apply", "-f", file("controller.yaml"))
	if printed := s.Kubectl(t, "apply", "-f", file("inline.yaml")); !strings.Contains(printed, "configured") {
		t.Errorf("the controller with a webhook was not changed: %s", printed)
	}
	follow(t, s)
	s.KubectlInput(t, `{"apiVersion":"example.com/v1","kind":"HelloWorld","metadata":{"name":"nobody"}}`, "-n", s.namespace, "apply", "-f", "-")
	s.awaitGreeting(t, "nobody", "Hello, World!")
}

// TestFromOneFileToAPod is the first minute of an author with one file. The log has what kubectl printed, and how long it took.
func TestFromOneFileToAPod(t *testing.T) {
	t.Run("AsInTheREADME", func(t *testing.T) {
		s := prepare(t, server.Options{})
		s.Kubectl(t, "apply", "-f", file("crd.yaml"))
		// The API server holds back the first object of a kind that is younger than two seconds.
		cluster.Eventually(t, limit, "a kind that is some seconds old", func(context.Context) (bool, string) {
			since := s.Kubectl(t, "get", "crd", "helloworlds.example.com", "-o", `jsonpath={.status.conditions[?(@.type=="Established")].lastTransitionTime}`)
			established, err := time.Parse(time.RFC3339, since)
			return err == nil && time.Since(established) > 3*time.Second, since
		})
		s.oneFile(t, []string{"inline.yaml", "hello.yaml"}, "apply", "-f")
	})
	// Server-side, objects are not held back.
	t.Run("WithItsKind", func(t *testing.T) {
		prepare(t, server.Options{}).oneFile(t, []string{"crd.yaml", "inline.yaml", "hello.yaml"}, "apply", "--server-side", "-f")
	})
}

// TestAHelloWorldWithoutWho shows the default that the hook, not the server, has chosen.
func TestAHelloWorldWithoutWho(t *testing.T) {
	s := setUp(t)
	s.KubectlInput(t, `{"apiVersion":"example.com/v1","kind":"HelloWorld","metadata":{"name":"nobody"}}`, "-n", s.namespace, "apply", "-f", "-")
	s.awaitGreeting(t, "nobody", "Hello, World!")
}

// A scene is the example up to and including its controller, in a namespace of its own.
type scene struct {
	*cluster.Cluster
	kube      kubernetes.Interface
	server    *server.Server
	namespace string
}

// oneFile applies manifests in one file, and logs how long it takes to the Pod.
func (s *scene) oneFile(t *testing.T, names []string, args ...string) {
	t.Helper()
	var manifests []string
	for _, name := range names {
		manifest, err := os.ReadFile(file(name))
		if err != nil {
			t.Fatal(err)
		}
		manifests = append(manifests, string(manifest))
	}
	path := filepath.Join(t.TempDir(), "hello.yaml")
	if err := os.WriteFile(path, []byte(strings.Join(manifests, "---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append(args, path)
	var transcript strings.Builder
	start := time.Now()
	elapsed := func() string { return time.Since(start).Round(time.Millisecond).String() }
	// kubectl looks for the kinds of all objects before the first is there: the author applies the file again.
	const most = 20
	for range most {
		printed, err := s.TryKubectl(t.Context(), "", append([]string{"-n", s.namespace}, args...)...)
		fmt.Fprintf(&transcript, "$ kubectl %s\n%s(after %s)\n", strings.Join(args, " "), printed, elapsed())
		if err == nil {
			break
		}
	}
	applied := elapsed()
	cluster.Eventually(t, limit, "the Pod", func(context.Context) (bool, string) {
		_, there := s.pods(t)["your-name"]
		return there, transcript.String()
	})
	took := elapsed()
	fmt.Fprintf(&transcript, "$ kubectl get pods\n%s", s.Kubectl(t, "-n", s.namespace, "get", "pods"))
	t.Logf("from kubectl apply to a Pod: %s; kubectl had ended after %s\n%s", took, applied, transcript.String())
	s.awaitGreeting(t, "your-name", "Hello, Your Name!")
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

const (
	// clusterHookURL is where the example's controller expects its hook inside a cluster.
	clusterHookURL = "http://hello-controller.hello/sync"
	limit          = cluster.Limit
)

func TestMain(m *testing.M) {
	if status, inside := container.Main(); inside {
		os.Exit(status)
	}
	os.Exit(cluster.Main(m))
}

// setUp follows the example's README, with the server's binary. Everything ends with the test.
func setUp(t *testing.T) *scene {
	t.Helper()
	return setUpWith(t, server.Options{})
}

// setUpWith is setUp with a server that is started in another way.
func setUpWith(t *testing.T, o server.Options) *scene {
	t.Helper()
	s := prepare(t, o)
	url := examplehook.Start(t, file("sync.py")) + "/sync"
	s.defineKind(t)
	manifest, err := os.ReadFile(file("controller.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	local := strings.Replace(string(manifest), clusterHookURL, url, 1)
	if local == string(manifest) {
		t.Fatalf("the example's controller does not have the hook's address %s", clusterHookURL)
	}
	s.KubectlInput(t, local, "apply", "-f", "-")
	return s
}

// defineKind applies the example's kind.
func (s *scene) defineKind(t *testing.T) {
	t.Helper()
	s.Kubectl(t, "apply", "-f", file("crd.yaml"))
	s.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/helloworlds.example.com")
}

// prepare starts the server. What the example has in the cluster is deleted at the end of the test.
func prepare(t *testing.T, o server.Options) *scene {
	t.Helper()
	c := cluster.Shared(t)
	s := &scene{Cluster: c, kube: cluster.NewClients(t, c.Config(t)).Kube, server: server.Start(t, c, o), namespace: c.Namespace(t)}
	t.Cleanup(func() {
		if t.Failed() {
			s.explain(t)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		for _, what := range []string{"compositecontroller/hello-controller", "crd/helloworlds.example.com"} {
			if output, err := c.TryKubectl(ctx, "", "delete", what, "--ignore-not-found"); err != nil {
				t.Errorf("cleaning up %s: %v\n%s", what, err, output)
			}
		}
	})
	return s
}

// explain shows what the cluster says about a scene that failed.
func (s *scene) explain(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	for _, args := range [][]string{
		{"get", "compositecontroller", "hello-controller", "-o", "yaml"},
		{"-n", s.namespace, "get", "helloworlds,pods,events"},
	} {
		output, err := s.TryKubectl(ctx, "", args...)
		t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// pods returns the namespace's Pods by name, those that are being deleted among them.
func (s *scene) pods(t *testing.T) map[string]corev1.Pod {
	t.Helper()
	list, err := s.kube.CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("listing the Pods: %v", err)
	}
	byName := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		byName[pod.Name] = pod
	}
	return byName
}

// file is the path of one of the example's files.
func file(name string) string {
	return filepath.Join(cluster.Root(), "artifacts", "examples", "hello-world", name)
}

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

const (
	// imageLayout is what `make image-local` writes.
	imageLayout = "bin/image-local/oci"
	// dataFolder, accessFolder and temporaryFolder are volumes, as in the manifests; accessFolder is in the place of a service account.
	dataFolder, accessFolder, temporaryFolder = "/var/lib/metacontroller-apiserver", "/etc/metacontroller/access", "/tmp"
)

// TestHelloWorldFromTheImage is the tutorial with the image of `make image`: the server and its register command run in a container, as a
// user without rights, and write to volumes alone.
func TestHelloWorldFromTheImage(t *testing.T) {
	shared := cluster.Shared(t)
	c := container.New(t, filepath.Join(cluster.Root(), imageLayout))
	data, access := c.Volume(dataFolder), c.Volume(accessFolder)
	temporary := c.Volume(temporaryFolder)
	kubeconfig, err := os.ReadFile(shared.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c.Write(filepath.Join(access, "kubeconfig"), kubeconfig)
	// The server has ended by then.
	t.Cleanup(func() {
		if found := files(t, temporary); len(found) > 0 {
			t.Errorf("the server left temporary files: %q", found)
		}
	})

	s := setUpWith(t, server.Options{DataDir: dataFolder, Command: func(ctx context.Context, args ...string) *exec.Cmd {
		args = slices.Clone(args)
		for i := range args {
			if args[i] == shared.Kubeconfig {
				args[i] = path.Join(accessFolder, "kubeconfig")
			}
		}
		return c.Command(ctx, args...)
	}})
	unprivileged(t, c, s.server.PID())
	follow(t, s)
	if found := files(t, data); len(found) == 0 {
		t.Error("the server wrote nothing to the volume of its data")
	}
}

// unprivileged checks what the kernel says of the server's process.
func unprivileged(t *testing.T, c *container.Container, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		has[name] = strings.Join(strings.Fields(value), " ")
	}
	// Whoever is not root has one number to give, his own.
	uid, gid := 65532, 65532
	if os.Geteuid() != 0 {
		uid, gid = os.Geteuid(), os.Getegid()
	}
	for name, want := range map[string]string{
		"Name": "metacontroller-", "Uid": fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", uid), "Gid": fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", gid),
		"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "NoNewPrivs": "1",
	} {
		if has[name] != want {
			t.Errorf("the server's process has %s %q, want %q", name, has[name], want)
		}
	}
	if os.Geteuid() == 0 && has["Groups"] != "" {
		t.Errorf("the server's process is in the groups %s", has["Groups"])
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	if c.ReadOnly() && !readOnlyRoot(string(mounts)) {
		t.Errorf("the root file system is not read-only:\n%s", mounts)
	}
}

// readOnlyRoot reports whether a process cannot write to its root, by the lines of its mountinfo.
func readOnlyRoot(mounts string) bool {
	for line := range strings.Lines(mounts) {
		if fields := strings.Fields(line); len(fields) > 5 && fields[4] == "/" {
			return slices.Contains(strings.Split(fields[5], ","), "ro")
		}
	}
	return false
}

// files lists the files under a folder.
func files(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, strings.TrimPrefix(path, folder))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
