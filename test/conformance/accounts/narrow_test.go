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
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

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
