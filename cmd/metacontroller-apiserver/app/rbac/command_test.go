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

package rbac

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// run runs the subcommand and returns what it printed.
func run(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewCommand()
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// Each definition in testdata has what is printed for it beside it.
func TestRolesOfDefinitions(t *testing.T) {
	files, err := filepath.Glob("testdata/*-controller.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no definitions: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(strings.Replace(file, "-controller.yaml", "-roles.yaml", 1))
			if err != nil {
				t.Fatal(err)
			}
			got, err := run(t, "", "-f", file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("printed something else (-want +got):\n%s", diff)
			}
		})
	}
}

const minimal = `
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: team, name: web}
---
apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata: {name: web}
spec:
  parentResource: {apiVersion: example.com/v1, resource: websites}
`

func TestAccountsFromTheCommandLine(t *testing.T) {
	got, err := run(t, minimal, "-f", "-", "--service-account=team/web", "--server-account=")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got, "  name: web\n  namespace: team\n") || strings.Contains(got, "impersonate") {
		t.Errorf("printed\n%s", got)
	}
}

// kubectl prints several objects as a list.
func TestControllersOfAList(t *testing.T) {
	one := func(kind, name, parents string) string {
		return `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"` + kind + `","metadata":{"name":"` + name + `"},"spec":{` + parents + `}}`
	}
	got, err := run(t, `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap"},`+
		one("CompositeController", "web", `"parentResource":{"apiVersion":"v1","resource":"pods"}`)+","+
		one("DecoratorController", "mark", `"resources":[{"apiVersion":"v1","resource":"pods"}]`)+`]}`, "-f", "-", "--service-account=team/web")
	if err != nil || !strings.Contains(got, "as that of compositecontroller/web.\n") || !strings.Contains(got, "as that of decoratorcontroller/mark.\n") {
		t.Errorf("error %v, printed\n%s", err, got)
	}
}

// What is printed may be applied as it comes, whatever the exit status is.
func TestNothingIsPrintedOfAFileInWhichOneControllerHasNoAccount(t *testing.T) {
	named := strings.Replace(minimal, "spec:\n", "spec:\n  serviceAccountRef: {namespace: team, name: web}\n", 1)
	got, err := run(t, named+"---"+strings.Replace(minimal, "{name: web}", "{name: other}", 1), "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "compositecontroller/other has no spec.serviceAccountRef") || strings.Contains(got, "kind: ClusterRole") {
		t.Errorf("error %v, printed\n%s", err, got)
	}
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		args []string
		want string
	}{
		"nothing":          {"", nil, "name a controller, or a file with -f"},
		"both":             {"", []string{"-f", "-", "web"}, "name a controller, or a file with -f"},
		"no account":       {minimal, []string{"-f", "-"}, "compositecontroller/web has no spec.serviceAccountRef"},
		"half an account":  {minimal, []string{"-f", "-", "--service-account=web"}, `--service-account: "web" is not NAMESPACE/NAME`},
		"half a server":    {minimal, []string{"-f", "-", "--service-account=a/b", "--server-account=/b"}, `--server-account: "/b" is not`},
		"no file":          {"", []string{"-f", "testdata/none.yaml"}, "reading controllers"},
		"no controller":    {"kind: ConfigMap\napiVersion: v1\n", []string{"-f", "-"}, "- holds no CompositeController"},
		"an unknown field": {minimal + "  serviceAccount: web\n", []string{"-f", "-"}, `unknown field "spec.serviceAccount"`},
		"no kind of ours": {
			minimal + "---\napiVersion: metacontroller.k8s.io/v1alpha1\nkind: Decorator\n",
			[]string{"-f", "-", "--service-account=a/b"},
			`"Decorator" is no kind of metacontroller.k8s.io/v1alpha1`,
		},
		"no YAML":           {"{", []string{"-f", "-"}, "reading controllers from -"},
		"no cluster":        {"", []string{"--kubeconfig=testdata/none", "web"}, "reading kubeconfig"},
		"a kind of another": {"", []string{"--kubeconfig=testdata/kubeconfig", "deployment/web"}, `"deployment" is not a kind of controllers`},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := run(t, tc.in, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it\n%s", err, tc.want, got)
			}
		})
	}
}

// Subresources that are not served get no right, and kinds that are not served are left as they are.
func TestWhatTheClusterServes(t *testing.T) {
	status := func(resource string) rights.Right {
		return rights.Right{Verb: rights.Patch, Resource: resource, Subresource: rights.SubresourceStatus}
	}
	bind := rights.Right{Verb: "bind", Group: "rbac.authorization.k8s.io", Resource: "roles"}
	sign := rights.Right{Verb: "sign", Group: "certificates.k8s.io", Resource: "signers"}
	finalizers := rights.Right{Verb: rights.Update, Resource: "plain", Subresource: rights.SubresourceFinalizers}
	c := controller{needs: rights.Needs{Kinds: []rights.Right{status("plain"), finalizers, status("rich"), status("none"), bind, sign}}}
	c.serve(map[schema.GroupResource]bool{{Resource: "plain"}: true, {Resource: "rich"}: true, {Resource: "rich/status"}: true})
	if diff := cmp.Diff([]rights.Right{finalizers, status("rich"), status("none"), bind, sign}, c.needs.Kinds); diff != "" {
		t.Errorf("the rights differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"The cluster does not serve none at present."}, c.notes); diff != "" {
		t.Errorf("the notes differ (-want +got):\n%s", diff)
	}
}
