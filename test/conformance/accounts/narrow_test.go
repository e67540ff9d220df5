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
			rules, err := registration.Rules(registration.ControllersRole)
			if err != nil {
				t.Fatal(err)
			}
			rules = slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.Resources, "*") || tc.isOlder && slices.Contains(r.Resources, "serviceaccounts")
			})
			e := setUp(t, append(rules, rbacv1.PolicyRule{
				APIGroups: []string{fixture.Group}, Resources: []string{fixture.Things.Resource}, Verbs: []string{"get", "list", "watch"},
			})...)
			t.Run("AComposite", func(t *testing.T) { narrow(t, e, tc.roles) })
		})
	}
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
