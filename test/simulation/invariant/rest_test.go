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

package invariant

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// TestRelatedSelection reads docs/reference/contract.md#s16.2.
func TestRelatedSelection(t *testing.T) {
	object := func(apiVersion, kind, namespace, name string) object {
		return object{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{
			"namespace": namespace, "name": name, "labels": map[string]any{"pick": "red"},
		}}
	}
	parent, clusterParent := object("sim.example.com/v1", "Thing", "ns0", "t0"), object("sim.example.com/v1", "Realm", "", "r0")
	gadget, realm := object("sim.example.com/v1", "Gadget", "ns1", "g0"), object("sim.example.com/v1", "Realm", "", "r0")
	gadgets := hook.RelatedResourceRule{APIVersion: "sim.example.com/v2", Resource: "gadgets"}
	realms := hook.RelatedResourceRule{APIVersion: "sim.example.com/v1", Resource: "realms"}
	named := func(r hook.RelatedResourceRule, names ...string) hook.RelatedResourceRule {
		r.Names = names
		return r
	}
	labeled := func(r hook.RelatedResourceRule, color string) hook.RelatedResourceRule {
		r.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pick": color}}
		return r
	}
	within := func(r hook.RelatedResourceRule, namespace string) hook.RelatedResourceRule {
		r.Namespace = namespace
		return r
	}
	for name, tc := range map[string]struct {
		version         string
		parent, related map[string]any
		rule            hook.RelatedResourceRule
		want            bool
	}{
		"EachOfAKindInAnyVersion":      {"v2", parent, gadget, gadgets, true},
		"AnotherKind":                  {"v2", parent, gadget, realms, false},
		"OfTheNamespaceOfTheParent":    {"v1", parent, gadget, gadgets, false},
		"OfAllNamespaces":              {"v1", clusterParent, gadget, gadgets, true},
		"OfTheCluster":                 {"v2", parent, realm, realms, true},
		"OfTheClusterAndHiddenByV1":    {"v1", parent, realm, realms, false},
		"OfTheClusterForAClusterScope": {"v1", clusterParent, realm, realms, true},
		"ByItsName":                    {"v2", parent, gadget, named(gadgets, "g0", "g1"), true},
		"ByAnotherName":                {"v2", parent, gadget, named(gadgets, "g1"), false},
		"ByItsLabel":                   {"v2", parent, gadget, labeled(gadgets, "red"), true},
		"ByAnotherLabel":               {"v2", parent, gadget, labeled(gadgets, "blue"), false},
		"ByItsNamespace":               {"v2", parent, gadget, within(gadgets, "ns1"), true},
		"ByAnotherNamespace":           {"v2", parent, gadget, within(gadgets, "ns0"), false},
	} {
		t.Run(name, func(t *testing.T) {
			d := map[string]any{"spec": map[string]any{"hooks": map[string]any{"customize": map[string]any{"version": tc.version}}}}
			if got := selectsRelated(d, tc.parent, tc.related, tc.rule); got != tc.want {
				t.Errorf("is related: %v, want %v", got, tc.want)
			}
		})
	}
}
