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

// Package firsthour plays the mistakes that authors of controllers make first, at a terminal, on a real control plane and with real
// hooks, and holds what kubectl prints to what it must say: the mistake and the next step, without the log of the server.
//
// What was printed is kept in testdata: the test fails when that is stale, and writes it with the flag -update. The table of docs/mistakes.md
// quotes a message of each mistake. The package holds tests only.
package firsthour

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const limit = cluster.Limit

// parallel is how many mistakes are played at once: most of the time each waits for the server.
const parallel = "8"

// golden is the file of what is printed, a section for each mistake.
const golden = "testdata/printed.txt"

var update = flag.Bool("update", false, "write "+golden)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(cluster.Main(m))
}

// A mistake is one of an author's first hour.
type mistake struct {
	// name is the name of the controller and of its parent.
	name string
	// title and text say what the author did.
	title, text string
	// play makes the mistake, and says what must be printed.
	play func(*session)
}

// kinds are what the authors' parents are. Rings have no status subresource, and of the status of Pumps one field is declared.
const kinds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things, singular: thing}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rings.example.com}
spec:
  group: example.com
  names: {kind: Ring, plural: rings, singular: ring}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pumps.example.com}
spec:
  group: example.com
  names: {kind: Pump, plural: pumps, singular: pump}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, properties: {ready: {type: integer}}}
`

// rights are those of the server: all that the cases need, but for PodDisruptionBudgets.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: first-hour}
rules:
- apiGroups: ["", apps, example.com, apiextensions.k8s.io, apiregistration.k8s.io, admissionregistration.k8s.io, authentication.k8s.io,
    authorization.k8s.io, coordination.k8s.io, discovery.k8s.io, events.k8s.io, flowcontrol.apiserver.k8s.io, metacontroller.k8s.io, rbac.authorization.k8s.io]
  resources: ["*"]
  verbs: ["*"]
- nonResourceURLs: ["*"]
  verbs: ["*"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: first-hour}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: first-hour}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: first-hour}]
`

func TestFirstHour(t *testing.T) {
	c := cluster.Shared(t)
	c.DefineManifests(t, kinds)
	c.KubectlInput(t, rights, "apply", "-f", "-")
	server.Start(t, c, server.Options{Kubeconfig: c.KubeconfigAs(t, "first-hour")})
	clients := cluster.NewClients(t, c.Config(t))

	all := slices.Concat(slow, reaching, answering, owning, settling, declaring)
	printed, whole := make([]string, len(all)), t
	t.Run("Mistakes", func(t *testing.T) {
		for i, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				s := &session{t: t, whole: whole, cluster: c, clients: clients, name: m.name}
				m.play(s)
				printed[i] = fmt.Sprintf("## %s\n\n%s\n\n%s", m.title, m.text, strings.TrimSpace(s.text.String()))
			})
		}
	})
	if t.Failed() {
		return
	}
	// Slow ones are played first, and printed where they belong.
	compare(t, append(printed[len(slow):], printed[:len(slow)]...))
}

// compare compares what was printed with the golden file, or writes that.
func compare(t *testing.T, sections []string) {
	t.Helper()
	want := strings.Join(sections, "\n\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(is) != want {
		before, after := strings.Split(string(is), "\n"), strings.Split(want, "\n")
		i := 0
		for i < min(len(before), len(after))-1 && before[i] == after[i] {
			i++
		}
		t.Fatalf("%s is stale: run this test with -update. Line %d is\n%s\nand kubectl prints\n%s", golden, i+1, before[i], after[i])
	}
}

// A session is an author at a terminal. It prints what he sees, without what differs from one time to the next.
type session struct {
	t *testing.T
	// whole is the test of all sessions.
	whole   *testing.T
	cluster *cluster.Cluster
	clients *cluster.Clients
	// name is that of the mistake, its controller and its parent.
	name string
	// text is what was printed, as Markdown.
	text strings.Builder
	// addresses are those of hooks, in the order in which they were made, which differ each time.
	addresses []string
}

// hook serves a sync hook, and returns its server. It serves until all sessions are over: the controller of a session goes on calling its
// hook, at whose port another session's would listen.
func (s *session) hook(handler http.Handler, options ...hooktest.Option) *hooktest.Server {
	h := hooktest.NewServer(s.whole, options...)
	h.Handle("/sync", handler)
	s.addresses = append(s.addresses, h.Host())
	return h
}

// nobody returns an address at which nobody listens.
func (s *session) nobody() string {
	address := freeport.Address(freeport.Find(s.t))
	s.addresses = append(s.addresses, address)
	return address
}

// composite is the manifest of a CompositeController of the Things with the session's label. The sync hook is at a URL; more is added
// to its webhook, and children are what spec.childResources has.
func (s *session) composite(url, more, children string) string {
	return fmt.Sprintf(`apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata: {name: %[1]s}
spec:
  generateSelector: true
  parentResource: {apiVersion: example.com/v1, resource: things, labelSelector: {matchLabels: {app: %[1]s}}}
  childResources: [%[4]s]
  hooks: {sync: {webhook: {url: "%[2]s"%[3]s}}}
`, s.name, url, more, children)
}

// configMaps declares ConfigMaps as children.
const configMaps = "{apiVersion: v1, resource: configmaps}"

// inPlace declares ConfigMaps as children that are updated.
const inPlace = "{apiVersion: v1, resource: configmaps, updateStrategy: {method: InPlace}}"

// parent is the manifest of a Thing with the session's label, of the given name and spec.
func (s *session) parent(name, spec string) string {
	return fmt.Sprintf(`apiVersion: example.com/v1
kind: Thing
metadata: {name: %s, labels: {app: %s}}
spec: %s
`, name, s.name, spec)
}

// start applies a controller and waits until it runs, and then a parent of the session's name.
func (s *session) start(controller string) {
	s.apply("controller.yaml", controller)
	s.ready()
	s.apply("thing.yaml", s.parent(s.name, "{size: 1}"))
}

// awaitWarning waits until kubectl would print a warning: an answer has none whose lookup takes too long.
func (s *session) awaitWarning(text, manifest string, args ...string) {
	s.t.Helper()
	args = append(args, "--dry-run=server")
	cluster.Eventually(s.t, limit, "a warning of "+text, func(ctx context.Context) (bool, string) {
		output, _ := s.cluster.TryKubectl(ctx, manifest, args...)
		return strings.Contains(output, text), output
	})
}

// warned applies a manifest of which a warning tells.
func (s *session) warned(file, manifest, text string) {
	s.t.Helper()
	s.awaitWarning(text, manifest, "apply", "-f", "-")
	s.apply(file, manifest)
}

// apply applies a manifest, whatever comes of it.
func (s *session) apply(file, manifest string) {
	s.t.Helper()
	output, _ := s.cluster.TryKubectl(s.t.Context(), manifest, "apply", "-f", "-")
	s.print("kubectl apply -f "+file, normal(s.addresses, output))
}

// run runs kubectl and prints what it says.
func (s *session) run(args ...string) {
	s.t.Helper()
	output, _ := s.cluster.TryKubectl(s.t.Context(), "", args...)
	s.print("kubectl "+strings.Join(args, " "), normal(s.addresses, table(output)))
}

// get prints the row of the session's controller.
func (s *session) get() { s.run("get", "compositecontroller", s.name) }

// describe prints the conditions of a controller in which something is wrong.
func (s *session) describe(kind string) {
	s.t.Helper()
	output := s.cluster.Kubectl(s.t, "describe", kind, s.name)
	s.print("kubectl describe "+kind+" "+s.name, normal(s.addresses, conditions(output)))
}

// events prints the Warning events about an object, such as thing/name.
func (s *session) events(object string) {
	s.t.Helper()
	args := []string{"events", "--for", object, "--types=Warning"}
	if strings.Contains(object, "controller/") {
		// Events about cluster-scoped objects are in the namespace default, which need not be that of the reader's kubeconfig.
		args = append([]string{"-n", "default"}, args...)
	}
	output := s.cluster.Kubectl(s.t, args...)
	s.print("kubectl "+strings.Join(args, " "), normal(s.addresses, events(output)))
}

// show shows a part of a file.
func (s *session) show(language, part string) {
	fmt.Fprintf(&s.text, "```%s\n%s\n```\n\n", language, strings.TrimSpace(part))
}

func (s *session) print(command, output string) {
	fmt.Fprintf(&s.text, "```console\n$ %s\n%s\n```\n\n", command, strings.TrimSpace(output))
}

// says fails the test for each text that was not printed.
func (s *session) says(texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if !strings.Contains(s.text.String(), text) {
			s.t.Errorf("kubectl printed\n%s\nwhich does not say %q", s.text.String(), text)
		}
	}
}

// ready waits until the session's CompositeController runs.
func (s *session) ready() {
	s.t.Helper()
	s.condition("Ready", "True", "")
}

// condition waits until a condition of the session's CompositeController has a status and a message with a text.
func (s *session) condition(name, status, text string) {
	s.t.Helper()
	s.conditionOf(schema.GroupVersionResource{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "compositecontrollers"}, name, status, text)
}

func (s *session) conditionOf(r schema.GroupVersionResource, name, status, text string) {
	s.t.Helper()
	what := fmt.Sprintf("%s %s to have the condition %s=%s %q", r.Resource, s.name, name, status, text)
	cluster.Eventually(s.t, limit, what, func(ctx context.Context) (bool, string) {
		o, err := s.clients.Dynamic.Resource(r).Get(ctx, s.name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		list, _ := nested(o.Object, "status", "conditions").([]any)
		for _, c := range list {
			if nested(c, "type") == name && nested(c, "status") == status && nested(c, "observedGeneration") == o.GetGeneration() &&
				strings.Contains(fmt.Sprint(nested(c, "message")), text) {
				return true, ""
			}
		}
		return false, fmt.Sprint(list)
	})
}

// event waits for a Warning event about an object of a name whose message has a text.
func (s *session) event(name, reason, text string) {
	s.t.Helper()
	cluster.Eventually(s.t, limit, fmt.Sprintf("the event %s of %s with %q", reason, name, text), func(ctx context.Context) (bool, string) {
		list, err := s.clients.Kube.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return false, err.Error()
		}
		var seen []string
		for i := range list.Items {
			e := &list.Items[i]
			if e.Type == corev1.EventTypeWarning && e.Reason == reason && strings.Contains(e.Message, text) {
				return true, ""
			}
			seen = append(seen, e.Type+" "+e.Reason+" "+e.Message)
		}
		return false, strings.Join(seen, "\n")
	})
}

// exists waits until an object is as wanted; text is what its JSON must hold.
func (s *session) exists(r schema.GroupVersionResource, name, text string) {
	s.t.Helper()
	cluster.Eventually(s.t, limit, fmt.Sprintf("%s %s with %q", r.Resource, name, text), func(ctx context.Context) (bool, string) {
		o, err := s.clients.Dynamic.Resource(r).Namespace("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		encoded, err := o.MarshalJSON()
		return err == nil && strings.Contains(string(encoded), text), string(encoded)
	})
}

// nested returns a nested value of a decoded object, nil if it has none.
func nested(o any, path ...string) any {
	for _, name := range path {
		fields, ok := o.(map[string]any)
		if !ok {
			return nil
		}
		o = fields[name]
	}
	return o
}
