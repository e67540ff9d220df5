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

package related

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

type (
	relatedRule = hook.RelatedResourceRule
	found       = map[string][]string
)

var (
	v1Inside  = Scope{Version: v1alpha1.HookVersionV1, Namespace: "home"}
	v2Inside  = Scope{Version: v1alpha1.HookVersionV2, Namespace: "home"}
	v1Outside = Scope{Version: v1alpha1.HookVersionV1}
)

// world is what the tests select from.
func world() (Informers, map[schema.GroupVersionResource]*things) {
	byResource := map[schema.GroupVersionResource]*things{
		configMaps: informerOf("home/b app=x", "home/a app=x tier=1", "home/c", "away/a app=x", "third/b app=y"),
		deploys:    informerOf("home/d app=x"),
		nodes:      informerOf("n2 app=x", "n1"),
		namespaces: informerOf("third team=b", "home team=a", "away team=b"),
	}
	return func(r schema.GroupVersionResource) Informer { return byResource[r] }, byResource
}

func TestSelect(t *testing.T) {
	cases := map[string]struct {
		reason string
		scope  Scope
		rules  []relatedRule
		want   found
	}{
		"NoRules": {
			reason: "Without rules nothing is related.",
			scope:  v1Inside, want: found{},
		},
		"EverythingV1": {
			reason: "A v1 rule without a selector reaches all of the parent's namespace.",
			scope:  v1Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps"}},
			want: found{"ConfigMap.v1": {"home/a", "home/b", "home/c"}},
		},
		"EmptyVersionIsV1": {
			reason: "A hook without a version is v1.",
			scope:  Scope{Namespace: "home"}, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps"}},
			want: found{"ConfigMap.v1": {"home/a", "home/b", "home/c"}},
		},
		"EverythingV2": {
			reason: "A v2 rule without a selector reaches all namespaces.",
			scope:  v2Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps"}},
			want: found{"ConfigMap.v1": {"away/a", "home/a", "home/b", "home/c", "third/b"}},
		},
		"EverythingClusterScopedParent": {
			reason: "Rules of cluster-scoped parents are unrestricted in v1 too.",
			scope:  v1Outside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps"}},
			want: found{"ConfigMap.v1": {"away/a", "home/a", "home/b", "home/c", "third/b"}},
		},
		"LabelsV1": {
			reason: "Labels in v1 are looked for in the parent's namespace.",
			scope:  v1Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")}},
			want: found{"ConfigMap.v1": {"home/a", "home/b"}},
		},
		"LabelsV2": {
			reason: "Labels in v2 are looked for everywhere.",
			scope:  v2Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")}},
			want: found{"ConfigMap.v1": {"away/a", "home/a", "home/b"}},
		},
		"EmptySelectorSelectsAll": {
			reason: "An empty labelSelector is no restriction.",
			scope:  v1Inside, rules: []relatedRule{{APIVersion: "apps/v1", Resource: "deployments", LabelSelector: &metav1.LabelSelector{}}},
			want: found{"Deployment.apps/v1": {"home/d"}},
		},
		"NamespaceAndLabels": {
			reason: "A namespace and a selector both restrict.",
			scope:  v2Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps", Namespace: "away", LabelSelector: equals("app", "x")}},
			want: found{"ConfigMap.v1": {"away/a"}},
		},
		"NamespaceAndNames": {
			reason: "Names in a namespace; a name that does not exist is not selected.",
			scope:  v2Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps", Namespace: "home", Names: []string{"c", "z", "a", "c"}}},
			want: found{"ConfigMap.v1": {"home/a", "home/c"}},
		},
		"NamesAnywhereV1": {
			reason: "Names without a namespace are looked for everywhere, even in v1.",
			scope:  v1Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps", Names: []string{"a"}}},
			want: found{"ConfigMap.v1": {"away/a", "home/a"}},
		},
		"OwnNamespaceV1": {
			reason: "A v1 rule may name the parent's own namespace.",
			scope:  v1Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps", Namespace: "home", Names: []string{"a"}}},
			want: found{"ConfigMap.v1": {"home/a"}},
		},
		"ClusterScopedIgnoresNamespace": {
			reason: "The namespace is ignored for cluster-scoped types, also where v1 would not allow it.",
			scope:  v1Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "nodes", Namespace: "away"}},
			want: found{"Node.v1": {"n1", "n2"}},
		},
		"ClusterScopedNames": {
			reason: "Cluster-scoped objects are found by name.",
			scope:  v1Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "nodes", Names: []string{"n2"}}},
			want: found{"Node.v1": {"n2"}},
		},
		"NamespaceSelector": {
			reason: "A namespaceSelector without labelSelector selects all objects of the namespaces.",
			scope:  v2Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("team", "b")}},
			want: found{"ConfigMap.v1": {"away/a", "third/b"}},
		},
		"NamespaceSelectorAndLabels": {
			reason: "Both selectors restrict.",
			scope:  v1Outside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("team", "b"), LabelSelector: equals("app", "y")}},
			want: found{"ConfigMap.v1": {"third/b"}},
		},
		"TypesWithoutObjectsHaveAGroup": {
			reason: "Hooks rely on the key of every type that they asked for.",
			scope:  v1Inside, rules: []relatedRule{{APIVersion: "apps/v1", Resource: "deployments", LabelSelector: equals("app", "none")}},
			want: found{"Deployment.apps/v1": nil},
		},
		"RulesOfOneTypeAreMerged": {
			reason: "An object that two rules select appears once.",
			scope:  v1Inside, rules: []relatedRule{
				{APIVersion: "v1", Resource: "configmaps", LabelSelector: equals("app", "x")},
				{APIVersion: "v1", Resource: "nodes"},
				{APIVersion: "v1", Resource: "configmaps", Namespace: "home", Names: []string{"a", "c"}},
			},
			want: found{"ConfigMap.v1": {"home/a", "home/b", "home/c"}, "Node.v1": {"n1", "n2"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			informers, _ := world()
			rules, err := Compile(t.Context(), tc.rules, tc.scope, served)
			if err != nil {
				t.Fatalf("%s\ncompiling: %v", tc.reason, err)
			}
			got := found{}
			for _, g := range Select(rules, informers) {
				got[g.Key] = nil
				for _, o := range g.Objects {
					got[g.Key] = append(got[g.Key], place(o))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nselected (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCompileRefuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		scope  Scope
		rules  []relatedRule
		want   string
	}{
		"NamesAndLabels": {
			reason: "Names and selectors exclude each other.",
			scope:  v2Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "nodes"}, {APIVersion: "v1", Resource: "configmaps", Names: []string{"a"}, LabelSelector: equals("a", "b")}},
			want: `relatedResources[1] (v1 configmaps): names and labelSelector exclude each other; remove one of them`,
		},
		"NamespaceAndNamespaceSelector": {
			reason: "Two ways to say which namespaces contradict each other.",
			scope:  v2Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps", Namespace: "a", NamespaceSelector: equals("a", "b")}},
			want: `relatedResources[0] (v1 configmaps): namespace and namespaceSelector exclude each other; remove one of them`,
		},
		"NoType": {
			reason: "A rule without a type cannot be looked up.",
			scope:  v2Inside, rules: []relatedRule{{}},
			want: `relatedResources[0]: apiVersion is missing`,
		},
		"ForeignNamespaceV1": {
			reason: "v1 does not reach beyond the parent's namespace.",
			scope:  v1Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps", Namespace: "away"}},
			want: `relatedResources[0] (v1 configmaps): namespace "away" is not the parent's namespace "home", which version v1 of the customize hook does not allow; use v2`,
		},
		"NamespaceSelectorV1": {
			reason: "v1 does not reach beyond the parent's namespace.",
			scope:  v1Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("a", "b")}},
			want: `relatedResources[0] (v1 configmaps): namespaceSelector reaches beyond the parent's namespace, which version v1 of the customize hook does not allow; use v2`,
		},
		"NamespaceSelectorOfClusterScopedType": {
			reason: "Objects without namespace cannot be selected by it.",
			scope:  v2Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "nodes", NamespaceSelector: equals("a", "b")}},
			want: `relatedResources[0] (v1 nodes): namespaceSelector needs a namespaced type; remove it`,
		},
		"UnknownResource": {
			reason: "A type that is not served fails the sync and says which.",
			scope:  v2Inside, rules: []relatedRule{{APIVersion: "v1", Resource: "configmap"}},
			want: `relatedResources[0] (v1 configmap): resolving the resource: the cluster serves no configmap in v1`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rules, err := Compile(t.Context(), tc.rules, tc.scope, served)
			if err == nil || err.Error() != tc.want || len(rules) > 0 {
				t.Errorf("%s\ngot  %v\nwant %s", tc.reason, err, tc.want)
			}
			wrong, ok := errors.AsType[*RuleError](err)
			if _, missing := errors.AsType[*missingError](err); !ok || wrong.Unresolved != missing {
				t.Errorf("got %#v; the error must tell a missing type from a bad rule", err)
			}
		})
	}
}

func TestCompileRefusesInvalidSelector(t *testing.T) {
	for _, r := range []relatedRule{
		{APIVersion: "v1", Resource: "configmaps", LabelSelector: expression("a", "Near", "b")},
		{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: expression("a", metav1.LabelSelectorOpIn)},
	} {
		_, err := Compile(t.Context(), []relatedRule{r}, v2Inside, served)
		if wrong, ok := errors.AsType[*RuleError](err); !ok || wrong.Unresolved {
			t.Errorf("rule %+v: got %v, want a RuleError", r, err)
		}
	}
}

func TestSelectReportsWhatHasNotSynced(t *testing.T) {
	informers, byResource := world()
	byResource[deploys].unsynced = true
	byResource[namespaces].unsynced = true
	rules, err := Compile(t.Context(), []relatedRule{
		{APIVersion: "v1", Resource: "configmaps", NamespaceSelector: equals("team", "b")},
		{APIVersion: "apps/v1", Resource: "deployments"},
	}, v2Inside, served)
	if err != nil {
		t.Fatal(err)
	}
	const want = "related objects are still being listed: apps/v1/deployments, v1/namespaces"
	if got := listing(unsynced(rules, informers)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNamesInANamespaceAreNotSearched(t *testing.T) {
	informers, byResource := world()
	rules, err := Compile(t.Context(), []relatedRule{
		{APIVersion: "v1", Resource: "configmaps", Namespace: "home", Names: []string{"a", "b"}},
		{APIVersion: "v1", Resource: "nodes", Names: []string{"n1"}},
	}, v2Inside, served)
	if err != nil {
		t.Fatal(err)
	}
	Select(rules, informers)
	if got := byResource[configMaps].lists + byResource[nodes].lists; got != 0 {
		t.Errorf("the informers were walked %d times; names must be looked up", got)
	}
	if diff := cmp.Diff([]schema.GroupVersionResource{configMaps, nodes}, rules.Resources()); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

// parse reads "namespace/name a=1 b=2"; without a slash the object is cluster-scoped.
func parse(s string) *object.Object {
	fields := strings.Fields(s)
	metadata := map[string]any{"name": fields[0]}
	if namespace, name, ok := strings.Cut(fields[0], "/"); ok {
		metadata["namespace"], metadata["name"] = namespace, name
	}
	labels := map[string]string{}
	for _, label := range fields[1:] {
		k, v, _ := strings.Cut(label, "=")
		labels[k] = v
	}
	metadata["labels"] = labels
	encoded, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err)
	}
	o, err := object.Parse(encoded, object.ParseOptions{})
	if err != nil {
		panic(err)
	}
	return o
}

func place(o *object.Object) string { return strings.TrimPrefix(o.Namespace()+"/"+o.Name(), "/") }

// things is an informer of the tests. It counts how often it is walked.
type things struct {
	objects  []*object.Object
	unsynced bool
	lists    int
}

func informerOf(objects ...string) *things {
	i := &things{}
	for _, o := range objects {
		i.objects = append(i.objects, parse(o))
	}
	return i
}

func (i *things) HasSynced() bool { return !i.unsynced }

func (i *things) Get(namespace, name string) (*object.Object, bool) {
	for _, o := range i.objects {
		if o.Namespace() == namespace && o.Name() == name {
			return o, true
		}
	}
	return nil, false
}

func (i *things) Named(names []string) []*object.Object {
	i.lists++
	return i.wanted(func(o *object.Object) bool { return slices.Contains(names, o.Name()) })
}

func (i *things) Matching(namespace string, selector labels.Selector) []*object.Object {
	i.lists++
	return i.wanted(func(o *object.Object) bool {
		return (namespace == "" || o.Namespace() == namespace) && selector.Matches(o.LabelSet())
	})
}

func (i *things) wanted(want func(*object.Object) bool) []*object.Object {
	var out []*object.Object
	for _, o := range i.objects {
		if want(o) {
			out = append(out, o)
		}
	}
	return out
}

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deploys    = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

// served are the types that exist in the tests.
func served(_ context.Context, apiVersion, resource string) (Type, error) {
	for _, t := range []Type{
		{Resource: configMaps, Kind: "ConfigMap", Namespaced: true},
		{Resource: deploys, Kind: "Deployment", Namespaced: true},
		{Resource: nodes, Kind: "Node", Namespaced: false},
	} {
		if t.Resource.GroupVersion().String() == apiVersion && t.Resource.Resource == resource {
			return t, nil
		}
	}
	return Type{}, &missingError{apiVersion, resource}
}

type missingError struct{ apiVersion, resource string }

func (e *missingError) Error() string {
	return fmt.Sprintf("the cluster serves no %s in %s", e.resource, e.apiVersion)
}

func equals(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func expression(key string, op metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
