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

package accounts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, cluster.Audit)) }

// serverUser is the server under test.
const serverUser = "system:serviceaccount:metacontroller:metacontroller-apiserver"

// setUp starts a server with the rights of the overlay least-privilege. Its ClusterRole metacontroller-controllers has the given rules, if
// there are any.
func setUp(t *testing.T, rules ...rbacv1.PolicyRule) *fixture.Environment {
	t.Helper()
	c := cluster.Shared(t)
	manifests := c.Kubectl(t, "kustomize", filepath.Join(cluster.Root(), "artifacts", "overlays", "least-privilege"))
	var applied []string
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		for _, kind := range []string{"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} {
			if strings.Contains("\n"+document, "\nkind: "+kind+"\n") {
				applied = append(applied, document)
			}
		}
	}
	c.KubectlInput(t, strings.Join(applied, "\n---\n"), "apply", "--server-side", "-f", "-")
	if len(rules) > 0 {
		role := &rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: registration.ControllersRole}, Rules: rules,
		}
		text, err := json.Marshal(role)
		if err != nil {
			t.Fatal(err)
		}
		c.KubectlInput(t, string(text), "apply", "--server-side", "-f", "-")
	}
	output, err := c.TryKubectl(t.Context(), "", "auth", "can-i", "create", "configmaps", "--all-namespaces", "--as="+serverUser)
	if err == nil {
		t.Fatalf("the server may write: %s", output)
	}
	return fixture.SetUp(t, fixture.Options{Server: server.Options{Kubeconfig: kubeconfig(t, c)}, Limit: limit})
}

// kubeconfig returns a file with the access of the server's service account.
func kubeconfig(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	token := strings.TrimSpace(c.Kubectl(t, "-n", "metacontroller", "create", "token", "metacontroller-apiserver"))
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

const limit = cluster.Limit

// A stage is a controller of Things with ConfigMaps as children, and its service account.
type stage struct {
	*fixture.Test

	script     *fixture.Script
	definition fixture.Definition
	account    string
}

func newStage(t *testing.T, e *fixture.Environment, kind fixture.Kind) *stage {
	t.Helper()
	t.Parallel()
	s := &stage{Test: e.NewTest(t), script: e.NewScript(kind), account: "worker"}
	s.script.Respond(greet)
	s.Handle("/hook", s.script)
	s.definition = fixture.Definition{
		Kind: kind, Sync: s.At("/hook"), Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
	}
	return s
}

// greet wants a ConfigMap with what the parent says, and a status, or for a decorator a label. Finalizing is done when no child is left.
func greet(c *fixture.Call) (*fixture.Reply, error) {
	if c.Finalizing {
		return &fixture.Reply{Finalized: len(c.Children.OfType("v1", "ConfigMap")) == 0}, nil
	}
	who := fixture.Value(c.Parent, "spec", "who")
	return &fixture.Reply{
		Children: []*hook.Object{fixture.ConfigMap(c.Parent.GetName(), map[string]any{"greeting": "Hello, " + who + "!"})},
		Status:   map[string]any{"greeted": who}, Labels: map[string]*string{"greeted": &who},
	}, nil
}

// as returns the definition with the stage's account, or another one of its namespace.
func (s *stage) as(account string) fixture.Definition {
	d, ref := s.definition, &v1alpha1.ServiceAccountReference{Namespace: s.Name, Name: account}
	composite, decorator := d.EditComposite, d.EditDecorator
	d.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) {
		if spec.ServiceAccountRef = ref; composite != nil {
			composite(spec)
		}
	}
	d.EditDecorator = func(spec *v1alpha1.DecoratorControllerSpec) {
		if spec.ServiceAccountRef = ref; decorator != nil {
			decorator(spec)
		}
	}
	return d
}

// manifest is the controller as its author writes it.
func (s *stage) manifest(d fixture.Definition) string {
	s.T.Helper()
	meta := metav1.ObjectMeta{Name: d.Name}
	if d.Name == "" {
		meta.Name = s.Name
	}
	var object any
	if d.Kind == fixture.Decorator {
		o := &v1alpha1.DecoratorController{ObjectMeta: meta, Spec: s.DecoratorSpec(d)}
		o.APIVersion, o.Kind, object = v1alpha1.SchemeGroupVersion.String(), "DecoratorController", o
	} else {
		o := &v1alpha1.CompositeController{ObjectMeta: meta, Spec: s.CompositeSpec(d)}
		o.APIVersion, o.Kind, object = v1alpha1.SchemeGroupVersion.String(), "CompositeController", o
	}
	text, err := json.Marshal(object)
	if err != nil {
		s.T.Fatal(err)
	}
	return string(text)
}

// rbac runs the subcommand and returns what it printed.
func (s *stage) rbac(in string, args ...string) string {
	s.T.Helper()
	command := exec.CommandContext(s.T.Context(), server.Binary(s.T), append([]string{"rbac"}, args...)...)
	var out, failure bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(in), &out, &failure
	command.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "GOCOVERDIR="+s.T.TempDir())
	if err := command.Run(); err != nil {
		s.T.Fatalf("rbac %v: %v\n%s", args, err, failure.String())
	}
	return out.String()
}

// grant makes the account of a definition and gives it what rbac prints. The roles go with the test.
func (s *stage) grant(account string, d fixture.Definition) (roles string) {
	s.T.Helper()
	s.serviceAccount(account)
	roles = s.rbac(s.manifest(d), "-f", "-")
	s.ApplyForTest(s.T, roles)
	return roles
}

func (s *stage) serviceAccount(name string) {
	s.T.Helper()
	s.Apply(s.T, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: `+name+`, namespace: `+s.Name+`}}`)
}

// run grants the account its rights and runs the controller.
func (s *stage) run() *controllers.Controller {
	s.T.Helper()
	d := s.as(s.account)
	s.grant(s.account, d)
	return s.Run(d)
}

// role is the name of the ClusterRole and its binding that rbac prints for the stage's controller.
func (s *stage) role() string {
	return "metacontroller-" + strings.ToLower(string(s.definition.Kind)) + "-" + s.Name
}

// takeAll takes the rights on parents and children away, and returns what gives them back.
func (s *stage) takeAll() (giveBack func()) {
	s.T.Helper()
	bindings := s.Kube.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Get(s.T.Context(), s.role(), metav1.GetOptions{})
	if err == nil {
		err = bindings.Delete(s.T.Context(), s.role(), metav1.DeleteOptions{})
	}
	if err != nil {
		s.T.Fatalf("deleting the binding: %v", err)
	}
	return func() {
		s.T.Helper()
		again := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: s.role()}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}
		if _, err := bindings.Create(s.T.Context(), again, metav1.CreateOptions{}); err != nil {
			s.T.Fatalf("making the binding again: %v", err)
		}
	}
}

// awaitPermitted waits for the condition.
func awaitPermitted(c *controllers.Controller, status metav1.ConditionStatus, reason string, parts ...string) metav1.Condition {
	return c.AwaitCondition(v1alpha1.ConditionPermitted, fmt.Sprintf("to be %s %s %q", status, reason, parts), func(is metav1.Condition) bool {
		for _, part := range parts {
			if !strings.Contains(is.Message, part) {
				return false
			}
		}
		return is.Status == status && is.Reason == reason
	})
}

// greeted waits until a parent's child has the greeting.
func (s *stage) greeted(name, who string) {
	s.T.Helper()
	s.awaitData(name, "Hello, "+who+"!")
}
