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

// Package accounts checks controllers that act as service accounts, of a server that has no right to write: what they write is written
// by the account, as the audit log of the kube-apiserver shows; what hooks are shown is what the account may read; and rights that are
// taken away and given back are seen, said and used.
package accounts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
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
	manifests := c.Kubectl(t, "kustomize", leastPrivilege(t))
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

// leastPrivilege returns the folder of the kustomization with the rights of the server.
func leastPrivilege(t *testing.T) string {
	t.Helper()
	overlay := filepath.Join(cluster.Root(), "artifacts", "overlays", "least-privilege")
	if !server.OnDefinitions() {
		return overlay
	}
	folder := t.TempDir()
	relative, err := filepath.Rel(folder, filepath.Join(cluster.Root(), "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%[1]s/overlays/least-privilege]\ncomponents: [%[1]s/components/definitions]\n", relative)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
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
	// finalize is the finalize hook, which a test may add to the definition.
	finalize *v1alpha1.Hook
	account  string
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
	s.finalize = s.At("/hook")
	return s
}

// inline has inline hooks do what greet does.
func (s *stage) inline() *stage {
	s.T.Helper()
	text := `
children:
- template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${parent.metadata.name}"}, data: {greeting: "Hello, ${parent.spec.who}!"}}
status: {greeted: "${parent.spec.who}"}
`
	if s.definition.Kind == fixture.Decorator {
		text += `labels: {greeted: "${parent.spec.who}"}`
	}
	s.definition.Sync = fixture.Inline(s.T, s.definition.Kind, text)
	s.finalize = fixture.Inline(s.T, s.definition.Kind, `finalized: children.configmaps.size() == 0`)
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

// writes returns what the server wrote in the stage's namespace, but for events, and for the revisions that it keeps in the cluster if it serves no
// API.
func (s *stage) writes() []auditv1.Event {
	s.T.Helper()
	return slices.DeleteFunc(s.Audited(s.T, s.Name), func(e auditv1.Event) bool {
		return e.User.Username != serverUser || e.ObjectRef.Resource == "events" ||
			!s.Server.ServesAPI() && e.ObjectRef.Resource == "controllerrevisions"
	})
}

// wrote checks that all writes were made as the account, with its groups, and waits for those wanted: what a test has seen of a sync may be its
// first write, and the API server logs a request after its response.
func (s *stage) wrote(account string, wanted ...string) {
	s.T.Helper()
	cluster.Eventually(s.T, s.Limit, account+" to do: "+strings.Join(wanted, ", "), func(context.Context) (bool, string) {
		seen := s.doneBy(account)
		return !slices.ContainsFunc(wanted, func(want string) bool { return !slices.Contains(seen, want) }), fmt.Sprintf("%q", seen)
	})
	groups := []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + s.Name}
	for _, w := range s.writes() {
		if w.ImpersonatedUser == nil {
			s.T.Errorf("the server itself did: %s %s", cluster.AuditedRequest(&w), w.ObjectRef.Name)
			continue
		}
		if got := slices.Sorted(slices.Values(w.ImpersonatedUser.Groups)); !slices.Equal(got, groups) {
			s.T.Errorf("%s was made with the groups %q", cluster.AuditedRequest(&w), got)
		}
	}
}

// doneBy returns the writes that were made as an account and succeeded, each once.
func (s *stage) doneBy(account string) []string {
	s.T.Helper()
	var done []string
	for _, w := range s.writes() {
		if w.ImpersonatedUser != nil && w.ImpersonatedUser.Username == "system:serviceaccount:"+s.Name+":"+account &&
			(w.ResponseStatus == nil || w.ResponseStatus.Code < 300) {
			done = append(done, cluster.AuditedRequest(&w))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(done)))
}

// awaitData waits until a ConfigMap has a greeting.
func (s *stage) awaitData(name, greeting string) {
	s.T.Helper()
	s.Await(fixture.ConfigMaps, name, "to say "+greeting, func(o *unstructured.Unstructured) bool {
		return o != nil && fixture.Value(o, "data", "greeting") == greeting
	})
}

// reads takes the right to read while the controller runs.
func reads(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	c := s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	s.greeted("a", "Alice")
	giveBack := s.takeAll()
	awaitPermitted(c, "False", v1alpha1.ReasonRightMissing, "service account "+s.Name+"/worker lacks, in all namespaces",
		"list, watch things."+fixture.Group, "list, watch configmaps", "metacontroller-apiserver rbac compositecontroller/"+s.Name)
	shown := s.Kubectl(t, "get", "compositecontroller", s.Name)
	if !strings.Contains(shown, "RightMissing") {
		t.Errorf("kubectl get shows\n%s", shown)
	}
	calls := s.script.Calls("a")
	s.Patch(fixture.Things, "a", `{"spec":{"who":"Bob"}}`)
	s.Parent("b", map[string]any{"who": "Carol"})
	// When another controller has seen what happened, this one has: they share the informer.
	s.witness("b")
	if now := s.script.Calls("a") + s.script.Calls("b"); now != calls {
		t.Errorf("the hook was called %d times for what the account may not read", now-calls)
	}
	giveBack()
	awaitPermitted(c, "True", v1alpha1.ReasonPermitted)
	s.greeted("a", "Bob")
	s.greeted("b", "Carol")
	c.AwaitReady()
	s.wrote("worker", "create configmaps", "update configmaps")
}

// witness runs a controller with an account of its own that sees the parents of the stage, and waits until it was called for one.
func (s *stage) witness(name string) {
	s.T.Helper()
	seen := s.NewScript(fixture.Composite)
	seen.Want()
	s.Handle("/witness", seen)
	d := s.as("witness")
	d.Name, d.Sync, d.Children = s.Name+"-witness", s.At("/witness"), nil
	s.grant("witness", d)
	s.Run(d)
	seen.AwaitCalls(s.T, name, 1)
}

// refusedWrites takes one right to write.
func refusedWrites(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	c := s.run()
	roles := s.Kubectl(t, "get", "clusterrole", s.role(), "-o", "json")
	narrowed := strings.Replace(roles, `"create",`, "", 1)
	if narrowed == roles {
		t.Fatalf("the role has no right to create: %s", roles)
	}
	s.KubectlInput(t, narrowed, "replace", "-f", "-")
	s.AwaitAccess(t, "system:serviceaccount:"+s.Name+":"+s.account, authorizationv1.ResourceAttributes{
		Namespace: s.Name, Verb: "create", Resource: "configmaps",
	}, false)
	// The server does not know that the role is narrowed before a write is refused.
	s.Parent("a", map[string]any{"who": "Alice"})
	s.AwaitEvent("a", "Warning", "SyncError", `cannot create resource "configmaps"`)
	awaitPermitted(c, "False", v1alpha1.ReasonRightMissing, "worker lacks", "create configmaps in namespace "+s.Name)
	s.Apply(t, s.rbac(s.manifest(s.as(s.account)), "-f", "-"))
	awaitPermitted(c, "True", v1alpha1.ReasonPermitted)
	s.greeted("a", "Alice")
	c.AwaitReady()
}

// deleted deletes the account, whose rights stay bound to its name.
func deleted(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Decorator)
	c := s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	s.greeted("a", "Alice")
	s.Kubectl(t, "-n", s.Name, "delete", "serviceaccount", "worker")
	awaitPermitted(c, "False", v1alpha1.ReasonServiceAccountNotFound, "The service account "+s.Name+"/worker does not exist. Create it")
	s.Patch(fixture.Things, "a", `{"spec":{"who":"Bob"}}`)
	s.serviceAccount("worker")
	awaitPermitted(c, "True", v1alpha1.ReasonPermitted)
	s.greeted("a", "Bob")
}

func notImpersonated(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	d := s.as(s.account)
	s.grant(s.account, d)
	s.Kubectl(t, "-n", s.Name, "delete", "rolebinding", s.role()+"-impersonation")
	c := s.Declare(d)
	awaitPermitted(c, "False", v1alpha1.ReasonRightMissing, "The server lacks: impersonate serviceaccounts "+s.Name+"/worker")
	s.Parent("a", map[string]any{"who": "Alice"})
	s.Apply(t, s.rbac("", s.Name))
	c.AwaitReady()
	s.greeted("a", "Alice")
}

// credentials are read as the account.
func credentials(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	s.Kubectl(t, "-n", s.Name, "create", "secret", "generic", "password", "--from-literal=username=u", "--from-literal=password=p")
	s.definition.Sync.Webhook.BasicAuth = &v1alpha1.WebhookBasicAuth{SecretRef: v1alpha1.SecretReference{Namespace: s.Name, Name: "password"}}
	d := s.as(s.account)
	s.grant(s.account, d)
	s.Kubectl(t, "-n", s.Name, "delete", "rolebinding", s.role()+"-credentials")
	c := s.Declare(d)
	awaitPermitted(c, "False", v1alpha1.ReasonRightMissing, "list, watch secrets "+s.Name+"/password")
	s.Parent("a", map[string]any{"who": "Alice"})
	s.Apply(t, s.rbac("", s.Name))
	s.greeted("a", "Alice")
	for _, request := range s.Hook.Requests("/hook") {
		// The user u with the password p.
		if got := request.Header.Get("Authorization"); got != "Basic dTpw" {
			t.Errorf("a call had the credentials %q", got)
		}
	}
}

// related asks for objects that the account may not read.
func related(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	s.definition.Customize = s.At("/customize")
	s.Hook.Handle("/customize", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{RelatedResources: []hook.RelatedResourceRule{{APIVersion: "v1", Resource: "services"}}}, nil
	}))
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		if len(c.Related.OfType("v1", "Service")) != 1 {
			return nil, errors.New("there is no Service")
		}
		return greet(c)
	})
	s.Kubectl(t, "-n", s.Name, "create", "service", "externalname", "related", "--external-name=example.com")
	c := s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	s.AwaitEvent("a", "Warning", "SyncError", "the service account "+s.Name+"/worker may not list, watch services, which the customize hook names as related")
	awaitPermitted(c, "False", v1alpha1.ReasonRightMissing, "list, watch services")
	s.ApplyForTest(t, `
{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"`+s.Name+`-related"},
	"rules":[{"apiGroups":[""],"resources":["services"],"verbs":["list","watch"]}]}
---
{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"`+s.Name+`-related"},
	"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"`+s.Name+`-related"},
	"subjects":[{"kind":"ServiceAccount","namespace":"`+s.Name+`","name":"worker"}]}
`)
	awaitPermitted(c, "True", v1alpha1.ReasonPermitted)
	s.greeted("a", "Alice")
}

// two controllers handle one kind with different accounts, of which one may read it.
func two(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Decorator)
	s.run()
	poor := s.NewScript(fixture.Decorator)
	poor.Want()
	s.Handle("/poor", poor)
	d := s.as("poor")
	d.Name, d.Sync = s.Name+"-poor", s.At("/poor")
	s.serviceAccount("poor")
	roles := s.rbac(s.manifest(d), "-f", "-")
	s.ApplyForTest(t, strings.ReplaceAll(roles, "  - list\n", ""))
	c := s.Declare(d)
	awaitPermitted(c, "False", v1alpha1.ReasonRightMissing, "list things."+fixture.Group, "list configmaps")
	s.Parent("a", map[string]any{"who": "Alice"})
	s.greeted("a", "Alice")
	if n := poor.All(); n > 0 {
		t.Errorf("the hook of the controller that may not list was called %d times", n)
	}
	s.Apply(t, roles)
	awaitPermitted(c, "True", v1alpha1.ReasonPermitted)
	poor.AwaitCalls(t, "a", 1)
}

// TestControllersActAsTheirAccounts runs them under a server that may write nothing itself.
func TestControllersActAsTheirAccounts(t *testing.T) {
	e := setUp(t)
	t.Run("AComposite", func(t *testing.T) { composite(newStage(t, e, fixture.Composite)) })
	t.Run("ADecorator", func(t *testing.T) { decorator(newStage(t, e, fixture.Decorator)) })
	t.Run("ACompositeWithInlineHooks", func(t *testing.T) { composite(newStage(t, e, fixture.Composite).inline()) })
	t.Run("ADecoratorWithAnInlineHook", func(t *testing.T) { decorator(newStage(t, e, fixture.Decorator).inline()) })
	t.Run("ARollout", func(t *testing.T) { rollout(t, e) })
	t.Run("AFinalizerThatIsReleased", func(t *testing.T) { releases(t, e) })
	t.Run("AnotherAccountWhileItRuns", func(t *testing.T) { changes(t, e) })
	t.Run("NoAccount", func(t *testing.T) { withoutAccount(t, e) })

	t.Run("ReadsThatAreTakenAndGivenBack", func(t *testing.T) { reads(t, e) })
	t.Run("WritesThatAreTakenAndGivenBack", func(t *testing.T) { refusedWrites(t, e) })
	t.Run("AnAccountThatIsDeleted", func(t *testing.T) { deleted(t, e) })
	t.Run("AServerThatMayNotActAsTheAccount", func(t *testing.T) { notImpersonated(t, e) })
	t.Run("CredentialsOfHooks", func(t *testing.T) { credentials(t, e) })
	t.Run("RelatedObjects", func(t *testing.T) { related(t, e) })
	t.Run("TwoAccountsOnOneKind", func(t *testing.T) { two(t, e) })
}

// composite is the HelloWorld: a child and a status, a change, and the end.
func composite(s *stage) {
	t := s.T
	s.definition.Finalize = s.finalize
	s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	s.greeted("a", "Alice")
	s.Patch(fixture.Things, "a", `{"spec":{"who":"Bob"}}`)
	s.greeted("a", "Bob")
	s.Await(fixture.Things, "a", "to have the status", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "greeted") == "Bob" })
	wide := s.Kubectl(t, "get", "compositecontroller", s.Name, "-o", "wide")
	account := s.Name + "/worker"
	if !s.Server.ServesAPI() { // A column of a definition has one field.
		account = "worker"
	}
	if !strings.Contains(wide, "SERVICE ACCOUNT") || !strings.Contains(wide, account) {
		t.Errorf("kubectl get -o wide shows\n%s", wide)
	}
	s.Kubectl(t, "wait", "--for=condition=Permitted", "--timeout=60s", "compositecontroller", s.Name)
	// What is printed for the controller that exists is what was printed for its manifest.
	if before, now := s.rbac(s.manifest(s.as(s.account)), "-f", "-"), s.rbac("", "compositecontroller/"+s.Name); before != now {
		t.Errorf("for the manifest\n%s\nfor the controller\n%s", before, now)
	}
	s.Delete(fixture.Things, "a")
	s.Await(fixture.Things, "a", "to be gone", cluster.Gone)
	s.wrote("worker", "create configmaps", "update configmaps", "delete configmaps", "patch things", "patch things/status")
}

func decorator(s *stage) {
	s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	s.greeted("a", "Alice")
	s.Await(fixture.Things, "a", "to have the label", func(o *unstructured.Unstructured) bool {
		return o != nil && o.GetLabels()["greeted"] == "Alice"
	})
	s.Patch(fixture.Things, "a", `{"spec":{"who":"Bob"}}`)
	s.greeted("a", "Bob")
	s.Await(fixture.Things, "a", "to have the status", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "greeted") == "Bob" })
	s.wrote("worker", "create configmaps", "update configmaps", "patch things", "patch things/status")
}

// rollout moves children one by one. The revisions are in the server's own store, and are its own.
func rollout(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	s.definition.Children[0].Method = v1alpha1.ChildUpdateRollingInPlace
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		greeting := map[string]any{"greeting": "Hello, " + fixture.Value(c.Parent, "spec", "who") + "!"}
		return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap("one", greeting), fixture.ConfigMap("two", greeting)}}, nil
	})
	s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	for _, who := range []string{"Alice", "Bob"} {
		s.Patch(fixture.Things, "a", `{"spec":{"who":"`+who+`"}}`)
		s.greeted("one", who)
		s.greeted("two", who)
	}
	if revisions := s.Kubectl(t, "-n", s.Name, "get", "controllerrevisions.metacontroller.k8s.io", "-o", "name"); !strings.Contains(revisions, "things.") {
		t.Errorf("the revisions are %q", revisions)
	}
	s.wrote("worker", "create configmaps", "update configmaps", "patch things/status")
}

// releases deletes a controller whose finalizer is on a parent.
func releases(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	s.definition.Finalize = s.At("/hook")
	c := s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	finalizer := s.Finalizer(s.definition)
	s.Await(fixture.Things, "a", "to have the finalizer", func(o *unstructured.Unstructured) bool { return fixture.HasFinalizer(o, finalizer) })
	s.greeted("a", "Alice")
	c.Delete()
	c.AwaitGone()
	if o := s.Get(fixture.Things, "a"); fixture.HasFinalizer(o, finalizer) {
		t.Errorf("the finalizers are %v", o.GetFinalizers())
	}
	s.wrote("worker", "patch things")
}

// changes gives the controller another account while it runs.
func changes(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	c := s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	s.greeted("a", "Alice")
	other := s.as("other")
	other.Name = s.Name + "-other" // Of the roles.
	s.grant("other", other)
	c.Patch(`{"spec":{"serviceAccountRef":{"name":"other"}}}`)
	c.AwaitReady()
	s.Patch(fixture.Things, "a", `{"spec":{"who":"Bob"}}`)
	s.greeted("a", "Bob")
	s.wrote("worker", "create configmaps")
	s.wrote("other", "update configmaps")
	for _, w := range s.writes() {
		if strings.HasSuffix(w.ImpersonatedUser.Username, ":other") && cluster.AuditedRequest(&w) == "create configmaps" {
			t.Error("the second account did what the first one did")
		}
	}
}

// withoutAccount shows that the server has none of the rights that the accounts have.
func withoutAccount(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	c := s.Run(s.definition)
	awaitPermitted(c, "True", v1alpha1.ReasonServerRights)
	s.Parent("a", map[string]any{"who": "Alice"})
	s.AwaitEvent("a", "Warning", "SyncError", `User "`+serverUser+`" cannot create resource "configmaps"`)
	// The kube-apiserver logs a request after it has answered.
	cluster.Eventually(t, limit, "a refusal in the audit log", func(context.Context) (bool, string) {
		writes := s.writes()
		return slices.ContainsFunc(writes, func(e auditv1.Event) bool {
			return e.ImpersonatedUser == nil && e.ResponseStatus != nil && e.ResponseStatus.Code == 403
		}), fmt.Sprint(writes)
	})
}

// TestAServerWhoseRoleNamesTheKinds runs servers whose ClusterRole is narrowed to the rules of the manifests that are for all kinds, and to reads
// of the controllers' kinds.
func TestAServerWhoseRoleNamesTheKinds(t *testing.T) {
	for name, tc := range map[string]struct {
		// isOlder says that the ClusterRole was narrowed when the manifests had no rule about service accounts.
		isOlder bool
		// roles changes what rbac prints.
		roles *strings.Replacer
	}{
		"AClusterRoleOfTheseManifests": {roles: strings.NewReplacer("  - impersonate\n  - get\n", "  - impersonate\n")},
		"ARoleOfRBAC":                  {isOlder: true, roles: strings.NewReplacer()},
	} {
		t.Run(name, func(t *testing.T) {
			left := "*"
			if tc.isOlder {
				left = "serviceaccounts"
			}
			e := setUp(t, append(rulesWithout(t, left), reading(fixture.Things))...)
			t.Run("AComposite", func(t *testing.T) { narrow(t, e, tc.roles) })
		})
	}
}

// rulesWithout returns the rules of the manifests for all kinds, without the one on a resource.
func rulesWithout(t *testing.T, resource string) []rbacv1.PolicyRule {
	t.Helper()
	rules, err := registration.Rules(registration.ControllersRole)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, resource)
	})
}

func reading(kind schema.GroupVersionResource) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{kind.Group}, Resources: []string{kind.Resource}, Verbs: []string{"get", "list", "watch"}}
}

// TestAServerThatReadsNamedSecretsAlone has no rule on all Secrets, and learns of one by the Role that rbac prints.
func TestAServerThatReadsNamedSecretsAlone(t *testing.T) {
	e := setUp(t, append(rulesWithout(t, "secrets"), reading(fixture.Things), reading(fixture.ConfigMaps))...)
	t.Run("NoAccount", func(t *testing.T) {
		s := newStage(t, e, fixture.Composite)
		s.Kubectl(t, "-n", s.Name, "create", "secret", "generic", "password", "--from-literal=username=u", "--from-literal=password=p")
		s.definition.Sync.Webhook.BasicAuth = &v1alpha1.WebhookBasicAuth{SecretRef: v1alpha1.SecretReference{Namespace: s.Name, Name: "password"}}
		s.Declare(s.definition)
		s.Parent("a", map[string]any{"who": "Alice"})
		s.AwaitEvent("a", "Warning", "SyncError", `secrets "password" is forbidden`)
		s.ApplyForTest(t, s.rbac(s.manifest(s.definition), "-f", "-", "--service-account=metacontroller/metacontroller-apiserver", "--server-account="))
		s.greeted("a", "Alice")
	})
}

// narrow runs a controller with an account that the server may only use by what rbac prints.
func narrow(t *testing.T, e *fixture.Environment, roles *strings.Replacer) {
	s := newStage(t, e, fixture.Composite)
	d := s.as(s.account)
	s.serviceAccount(s.account)
	s.ApplyForTest(t, roles.Replace(s.rbac(s.manifest(d), "-f", "-")))
	c := s.Declare(d)
	awaitPermitted(c, "True", v1alpha1.ReasonPermitted)
	s.Parent("a", map[string]any{"who": "Alice"})
	s.greeted("a", "Alice")
	s.wrote("worker", "create configmaps", "patch things/status")
}
