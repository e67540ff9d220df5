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

package manifest

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// Controller is a controller whose service account is to be given its rights.
type Controller struct {
	// Name is that of the roles and bindings: a DNS subdomain of the controller's kind and name.
	Name string
	// Account is the service account.
	Account rights.Account
	// Needs are the rights of the definition. Those on related objects are not given: they would be all.
	Needs rights.Needs
	// Server is the service account of the server, which is let act as Account. Nil: that is left out.
	Server *rights.Account
}

// Objects returns a ClusterRole with its binding for the kinds of the controller, a Role with its binding in each namespace that holds
// credentials, and one with which the server may act as the account.
func Objects(c Controller) []any {
	var objects []any
	if rules := rulesOf(c.Needs.Kinds); len(rules) > 0 {
		objects = append(objects,
			&rbacv1.ClusterRole{TypeMeta: typeOf("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: c.Name}, Rules: rules},
			&rbacv1.ClusterRoleBinding{
				TypeMeta: typeOf("ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: c.Name},
				RoleRef: reference("ClusterRole", c.Name), Subjects: []rbacv1.Subject{subject(c.Account)},
			})
	}
	for _, namespace := range namespaces(c.Needs.Credentials) {
		in := slices.DeleteFunc(slices.Clone(c.Needs.Credentials), func(r rights.Right) bool { return r.Namespace != namespace })
		objects = append(objects, role(namespace, c.Name+"-credentials", c.Account, rulesOf(in))...)
	}
	if c.Server != nil {
		// It asks whether the account exists before it acts as it.
		acts := []rights.Right{c.Account.Impersonate(), c.Account.Get()}
		objects = append(objects, role(c.Account.Namespace, c.Name+"-impersonation", *c.Server, rulesOf(acts))...)
	}
	return objects
}

func role(namespace, name string, account rights.Account, rules []rbacv1.PolicyRule) []any {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	return []any{
		&rbacv1.Role{TypeMeta: typeOf("Role"), ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{
			TypeMeta: typeOf("RoleBinding"), ObjectMeta: meta, RoleRef: reference("Role", name), Subjects: []rbacv1.Subject{subject(account)},
		},
	}
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

func reference(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

func subject(a rights.Account) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name}
}

// namespaces returns those of the rights, sorted.
func namespaces(list []rights.Right) []string {
	names := make([]string, 0, len(list))
	for _, r := range list {
		names = append(names, r.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// rulesOf writes rights as rules: one for all resources of a group that have the same verbs, in the order in which they come first.
func rulesOf(list []rights.Right) []rbacv1.PolicyRule {
	var objects []rights.Right
	verbs := map[rights.Right][]string{}
	for _, r := range list {
		on := r.Object()
		if verbs[on] == nil {
			objects = append(objects, on)
		}
		verbs[on] = append(verbs[on], r.Verb)
	}
	var rules []rbacv1.PolicyRule
	for _, on := range objects {
		resource := strings.TrimSuffix(on.Resource+"/"+on.Subresource, "/")
		i := slices.IndexFunc(rules, func(rule rbacv1.PolicyRule) bool {
			return rule.APIGroups[0] == on.Group && slices.Equal(rule.Verbs, verbs[on]) &&
				(on.Name == "" || slices.Equal(rule.Resources, []string{resource}))
		})
		if i < 0 {
			rule := rbacv1.PolicyRule{APIGroups: []string{on.Group}, Resources: []string{resource}, Verbs: verbs[on]}
			if on.Name != "" {
				rule.ResourceNames = []string{on.Name}
			}
			rules = append(rules, rule)
			continue
		}
		if on.Name != "" {
			rules[i].ResourceNames = append(rules[i].ResourceNames, on.Name)
		} else {
			rules[i].Resources = append(rules[i].Resources, resource)
		}
	}
	return rules
}
