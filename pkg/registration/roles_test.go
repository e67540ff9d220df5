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

package registration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestWhatARoleLacks(t *testing.T) {
	rule := func(groups, resources, verbs []string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: groups, Resources: resources, Verbs: verbs, ResourceNames: names}
	}
	list := func(texts ...string) []string { return texts }
	everything := rule(list("*"), list("*"), list("*"))
	for name, test := range map[string]struct {
		wants, has []rbacv1.PolicyRule
		lacks      []string
	}{
		"nothing": {
			wants: []rbacv1.PolicyRule{rule(list(""), list("pods", "secrets"), list("get", "list"))},
			has:   []rbacv1.PolicyRule{rule(list(""), list("secrets"), list("list", "get")), rule(list(""), list("pods"), list("get")), rule(list(""), list("pods"), list("list"))},
		},
		"nothing of what is everything": {
			wants: []rbacv1.PolicyRule{rule(list("apps"), list("deployments/status"), list("patch"), "a"), everything},
			has:   []rbacv1.PolicyRule{everything},
		},
		"everything": {
			wants: []rbacv1.PolicyRule{everything},
			has:   []rbacv1.PolicyRule{rule(list("apps"), list("*"), list("*"))},
			lacks: list("* * in *"),
		},
		"verbs": {
			wants: []rbacv1.PolicyRule{rule(list("", "apps"), list("deployments"), list("get", "patch", "update"))},
			has:   []rbacv1.PolicyRule{rule(list("apps"), list("deployments"), list("get")), rule(list(""), list("deployments"), list("*"))},
			lacks: list("patch, update deployments in apps"),
		},
		"other names": {
			wants: []rbacv1.PolicyRule{rule(list(""), list("secrets"), list("get"), "a", "b")},
			has:   []rbacv1.PolicyRule{rule(list(""), list("secrets"), list("get"), "a")},
			lacks: list("get secrets b"),
		},
		"all names": {
			wants: []rbacv1.PolicyRule{rule(list(""), list("secrets"), list("get"))},
			has:   []rbacv1.PolicyRule{rule(list(""), list("secrets"), list("get"), "a")},
			lacks: list("get secrets"),
		},
		"a subresource that all resources give": {
			wants: []rbacv1.PolicyRule{rule(list(""), list("pods/status", "pods/log"), list("get"))},
			has:   []rbacv1.PolicyRule{rule(list(""), list("*/status", "pods"), list("get"))},
			lacks: list("get pods/log"),
		},
		"URLs": {
			wants: []rbacv1.PolicyRule{{NonResourceURLs: list("/metrics", "/livez/etcd"), Verbs: list("get")}},
			has:   []rbacv1.PolicyRule{{NonResourceURLs: list("/livez/*"), Verbs: list("get")}},
			lacks: list("get /metrics"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.lacks, uncovered(test.wants, test.has)); diff != "" {
				t.Errorf("it lacks (-want +got):\n%s", diff)
			}
		})
	}
}
