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

package children_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

func declared() children.Rules {
	rule := func(group, version, kind, resource string, namespaced bool) children.Rule {
		return children.Rule{
			Kind:       schema.GroupVersionKind{Group: group, Version: version, Kind: kind},
			Resource:   schema.GroupVersionResource{Group: group, Version: version, Resource: resource},
			Namespaced: namespaced,
			Method:     v1alpha1.ChildUpdateInPlace,
		}
	}
	return children.NewRules([]children.Rule{
		rule("", "v1", "ConfigMap", "configmaps", true),
		rule("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
		rule("", "v1", "Node", "nodes", false),
	})
}

func decodeList(t testing.TB, text string) []map[string]any {
	t.Helper()
	var list []map[string]any
	if err := utiljson.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestValidateRefusesResponses(t *testing.T) {
	const (
		namespaced = "parents"
		cluster    = ""
	)
	selector := labels.SelectorFromSet(labels.Set{"app": "a"})
	for _, test := range []struct {
		name, parent string
		selector     labels.Selector
		list         string
		want         string
	}{
		{"an element is null", namespaced, nil, `[null]`, "children[0]: is null; leave it out"},
		{"no apiVersion", namespaced, nil, `[{"kind":"ConfigMap","metadata":{"name":"a"}}]`, "children[0]: has no apiVersion; each child needs apiVersion, kind and metadata.name"},
		{"apiVersion is a number", namespaced, nil, `[{"apiVersion":1,"kind":"ConfigMap"}]`, "children[0]: has no apiVersion; each child needs apiVersion, kind and metadata.name"},
		{
			"apiVersion has too many parts", namespaced, nil, `[{"apiVersion":"a/b/c","kind":"ConfigMap"}]`,
			`children[0]: has the apiVersion "a/b/c", which is not group/version`,
		},
		{
			"apiVersion leads elsewhere", namespaced, nil, `[{"apiVersion":"apps/..","kind":"ConfigMap","metadata":{"name":"a"}}]`,
			`children[0]: has the apiVersion "apps/..", whose version is none`,
		},
		{"no kind", namespaced, nil, `[{"apiVersion":"v1","metadata":{"name":"a"}}]`, "children[0]: has no kind"},
		{
			"metadata is a list", namespaced, nil, `[{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}]`,
			"children[0]: has a metadata that is not an object",
		},
		{"no name", namespaced, nil, `[{"apiVersion":"v1","kind":"ConfigMap"}]`, "children[0]: ConfigMap has no metadata.name"},
		{
			"generateName alone", namespaced, nil, `[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}]`,
			"children[0]: ConfigMap has generateName but no name; a child is found again by its name, so give it one that stays the same",
		},
		{
			"the name leads elsewhere", namespaced, nil, `[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a/../b"}}]`,
			`children[0]: ConfigMap has the metadata.name "a/../b", which may not contain '/'`,
		},
		{
			"an undeclared kind", namespaced, nil, `[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}]`,
			"children[0]: Secret a is of kind Secret in v1, which is not declared; add it to spec.childResources",
		},
		{
			"a declared kind's name in another group", namespaced, nil,
			`[{"apiVersion":"example.com/v1","kind":"ConfigMap","metadata":{"name":"a"}}]`,
			"children[0]: ConfigMap a is of kind ConfigMap in example.com/v1, which is not declared; add it to spec.childResources",
		},
		{
			"another namespace than the parent's", namespaced, nil,
			`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"other"}}]`,
			"children[0]: ConfigMap other/a is not in its parent's namespace parents; a namespaced parent can only have children in its namespace",
		},
		{
			"a cluster-scoped child of a namespaced parent", namespaced, nil, `[{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}]`,
			"children[0]: Node a is cluster-scoped, but its parent is in namespace parents; a namespaced parent can only have children in its namespace",
		},
		{
			"no namespace under a cluster-scoped parent", cluster, nil, `[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}]`,
			"children[0]: ConfigMap a has no metadata.namespace; a child of a cluster-scoped parent must name one",
		},
		{
			"the namespace leads elsewhere", cluster, nil,
			`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":".."}}]`,
			`children[0]: ConfigMap ../a has the metadata.namespace "..", which may not be '..'`,
		},
		{
			"the namespace is a number", cluster, nil, `[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":1}}]`,
			"children[0]: ConfigMap a has a metadata.namespace that is not a string",
		},
		{
			"the same child twice", namespaced, nil,
			`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}},{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"parents"}}]`,
			"children[1]: ConfigMap parents/a is there twice, also as children[0]; return each ConfigMap once",
		},
		{
			"the same child in two versions", namespaced, nil,
			`[{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}},` +
				`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}}]`,
			"children[1]: HorizontalPodAutoscaler parents/a is there twice, also as children[0]; return each HorizontalPodAutoscaler once",
		},
		{
			"a label that is a number", namespaced, nil, `[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"n":1}}}]`,
			`children[0]: invalid labels on desired child ConfigMap parents/a: the value of "n" is not a string but 1; quote it, or leave it out`,
		},
		{
			"a label that is null where labels are selected", namespaced, selector, `[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"n":null}}}]`,
			`children[0]: invalid labels on desired child ConfigMap parents/a: the value of "n" is not a string but null; quote it, or leave it out`,
		},
		{
			"labels that are a list", namespaced, nil, `[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":[]}}]`,
			"children[0]: invalid labels on desired child ConfigMap parents/a: metadata.labels is not an object",
		},
		{
			"an annotation that is an object", namespaced, nil,
			`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"n":{}}}}]`,
			`children[0]: invalid annotations on desired child ConfigMap parents/a: the value of "n" is not a string but {}; quote it, or leave it out`,
		},
		{
			"labels that the parent does not select", namespaced, selector,
			`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"app":"b"}}}]`,
			"children[0]: labels on desired child ConfigMap parents/a don't match parent selector app=a; give the child these labels, or set " +
				"spec.generateSelector of the controller",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			scope := children.Scope{Field: "children", Declared: "spec.childResources", Namespace: test.parent, Selector: test.selector}
			desired, _, err := children.Validate(scope, declared(), decodeList(t, test.list))
			if !hook.IsRejected(err) {
				t.Fatalf("not refused: %v", err)
			}
			if err.Error() != test.want {
				t.Errorf("message\n%s, want\n%s", err, test.want)
			}
			if desired != nil {
				t.Error("some of a refused response is returned")
			}
		})
	}
}

func TestValidateTellsTheFirstFaultsOfMany(t *testing.T) {
	_, _, err := children.Validate(children.Scope{Field: "attachments", Declared: "spec.attachments"}, declared(), make([]map[string]any, 5))
	const want = "attachments[0]: is null; leave it out; attachments[1]: is null; leave it out; " +
		"attachments[2]: is null; leave it out; and 2 more"
	if err == nil || err.Error() != want {
		t.Errorf("message %v, want %s", err, want)
	}
}

func TestValidateCompletesChildren(t *testing.T) {
	for _, test := range []struct {
		name  string
		scope children.Scope
		list  string
		want  string
	}{
		{
			"the namespace of the parent",
			children.Scope{Namespace: "parents"},
			`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}]`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"parents"}}`,
		},
		{
			"a null annotation counts as none",
			children.Scope{Namespace: "parents", Selector: labels.Everything(), Annotations: map[string]string{"mark": "m"}},
			`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"n":null,"o":"p"}}}]`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"mark":"m","o":"p"},"name":"a","namespace":"parents"}}`,
		},
		{
			"a null label counts as none where nothing is selected",
			children.Scope{Namespace: "parents"},
			`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"n":null}}}]`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{},"name":"a","namespace":"parents"}}`,
		},
		{
			"a null namespace counts as none",
			children.Scope{Namespace: "parents"},
			`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":null}}]`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"parents"}}`,
		},
		{
			"a cluster-scoped child has no namespace",
			children.Scope{},
			`[{"apiVersion":"v1","kind":"Node","metadata":{"name":"a","namespace":"b"}}]`,
			`{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}`,
		},
		{
			"the label of generateSelector",
			children.Scope{
				Namespace: "parents", Labels: map[string]string{"controller-uid": "1"},
				Selector: labels.SelectorFromSet(labels.Set{"controller-uid": "1"}),
			},
			`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}]`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"controller-uid":"1"},"name":"a","namespace":"parents"}}`,
		},
		{
			"the marker of a decorator, beside other annotations",
			children.Scope{
				Namespace: "parents", Annotations: map[string]string{"decorator": "d"},
			},
			`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"b":"c"}}}]`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"b":"c","decorator":"d"},"name":"a","namespace":"parents"}}`,
		},
		{
			"an undeclared version of a declared kind",
			children.Scope{Namespace: "parents"},
			`[{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}}]`,
			`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a","namespace":"parents"}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			desired, _, err := children.Validate(test.scope, declared(), decodeList(t, test.list))
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := utiljson.Marshal(desired[0].Content)
			if err != nil {
				t.Fatal(err)
			}
			if string(encoded) != test.want {
				t.Errorf("got\n%s, want\n%s", encoded, test.want)
			}
		})
	}
}

func TestAPresetLabelOfAnotherParentIsRefused(t *testing.T) {
	scope := children.Scope{
		Field: "children", Namespace: "parents", Labels: map[string]string{"controller-uid": "1"},
		Selector: labels.SelectorFromSet(labels.Set{"controller-uid": "1"}),
	}
	_, _, err := children.Validate(scope, declared(),
		decodeList(t, `[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"controller-uid":"2"}}}]`))
	if err == nil || !strings.Contains(err.Error(), "don't match parent selector") {
		t.Errorf("not refused: %v", err)
	}
}

func TestOfTwoRulesForAKindTheLastCounts(t *testing.T) {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	rules := children.NewRules([]children.Rule{
		{Kind: kind, Method: v1alpha1.ChildUpdateRecreate}, {Kind: kind, Method: v1alpha1.ChildUpdateInPlace},
	})
	if rule, ok := rules.For(kind.GroupKind()); !ok || rule.Method != v1alpha1.ChildUpdateInPlace {
		t.Errorf("rule %v", rule)
	}
	if kinds := rules.Kinds(); len(kinds) != 1 || kinds[0] != kind {
		t.Errorf("kinds %v, want %v once", kinds, kind)
	}
}

func FuzzValidate(f *testing.F) {
	for _, seed := range []string{
		`[null]`, `[{}]`, `[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"a":"b"}}}]`,
		`[{"apiVersion":"v1","kind":"Node","metadata":null}]`, `[{"apiVersion":"/","kind":"","metadata":{"name":{}}}]`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, response []byte, namespaced bool) {
		namespace := ""
		if namespaced {
			namespace = "parents"
		}
		var list []map[string]any
		if utiljson.Unmarshal(response, &list) != nil {
			return
		}
		desired, _, err := children.Validate(children.Scope{Field: "children", Namespace: namespace}, declared(), list)
		if (err == nil) != (len(desired) == len(list)) && len(list) > 0 {
			t.Errorf("%d children of %d, error %v", len(desired), len(list), err)
		}
		for _, d := range desired {
			if strings.Contains(d.Name, "/") || strings.Contains(d.Namespace, "/") {
				t.Errorf("%s leads elsewhere", d.Key)
			}
		}
	})
}

// validation prepares the validation of so many children.
func validation(tb testing.TB, n int) func() {
	tb.Helper()
	scope := children.Scope{Field: "children", Namespace: "parents", Labels: map[string]string{"controller-uid": "1"}}
	rules := declared()
	list := make([]map[string]any, n)
	return func() {
		for i := range list {
			list[i] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprint("child-", i)}}
		}
		if _, _, err := children.Validate(scope, rules, list); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestAValidationCostsTheChildrenAndNotTheirSquare(t *testing.T) {
	slope.Check(t, 500, slope.Linear, validation)
}

func BenchmarkValidate(b *testing.B) { slope.Benchmark(b, validation) }

func TestChildrenOfGroupsWithAMissingKindAreLeftOut(t *testing.T) {
	gone := schema.GroupVersionResource{Group: "gone.example.com", Version: "v1", Resource: "things"}
	rules := children.NewRules([]children.Rule{{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespaced: true}}, gone)
	const there = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	const missing = `{"apiVersion":"gone.example.com/v1","kind":"Thing","metadata":{"name":"b","namespace":"ns"}}`
	scope := children.Scope{Field: "children", Declared: "spec.childResources", Namespace: "ns"}
	desired, unserved, err := children.Validate(scope, rules, decodeList(t, "["+there+","+missing+"]"))
	if err != nil || len(desired) != 1 || desired[0].Name != "a" {
		t.Errorf("desired %+v, error %v", desired, err)
	}
	want := children.Key{Group: "gone.example.com", Kind: "Thing", Namespace: "ns", Name: "b"}
	if len(unserved) != 1 || unserved[0] != want {
		t.Errorf("unserved %v, want %s", unserved, want)
	}
	// Another group is not excused.
	if _, _, err := children.Validate(scope, rules, decodeList(t, strings.ReplaceAll("["+missing+"]", "gone.", "other."))); !hook.IsRejected(err) {
		t.Errorf("not refused: %v", err)
	}
}
