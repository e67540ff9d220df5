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
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

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
