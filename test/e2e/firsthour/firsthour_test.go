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

package firsthour

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const limit = cluster.Limit

// parallel is how many mistakes are played at once: most of the time each waits for the server.
const parallel = "8"

var update = flag.Bool("update", false, "write docs/mistakes.md")

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
	server.Start(t, c, server.Options{Kubeconfig: impersonating(t, c, "first-hour")})
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
	// Slow ones are played first, and told where they belong.
	compare(t, page(append(printed[len(slow):], printed[:len(slow)]...)))
}

// page returns the page of what was printed.
func page(sections []string) string {
	const head = `# What mistakes look like

What kubectl prints after the mistakes that authors of controllers make first. A test plays them
([test/e2e/firsthour](../test/e2e/firsthour)) and writes this page; do not edit it. Left out are times, ages and counts, conditions
in which nothing is wrong, and Normal events. Look for a word of what you see, or go through
[troubleshooting](troubleshooting.md).

`
	return head + strings.Join(sections, "\n\n") + "\n"
}

// compare compares the page with the one that is there, or writes it.
func compare(t *testing.T, want string) {
	t.Helper()
	path := filepath.Join(cluster.Root(), "docs", "mistakes.md")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	is, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(is, []byte(want)) {
		return
	}
	before, after := strings.Split(string(is), "\n"), strings.Split(want, "\n")
	for i := range min(len(before), len(after)) {
		if before[i] != after[i] {
			t.Fatalf("docs/mistakes.md is stale: run this test with -update. Line %d is\n%s\nand kubectl prints\n%s", i+1, before[i], after[i])
		}
	}
	t.Fatal("docs/mistakes.md is stale: run this test with -update")
}

// impersonating returns a kubeconfig of an administrator who acts as another user.
func impersonating(t *testing.T, c *cluster.Cluster, user string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
