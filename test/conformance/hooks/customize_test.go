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

package hooks

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	v1 = v1alpha1.HookVersionV1
	v2 = v1alpha1.HookVersionV2
)

// rules is a response of a customize hook.
func rules(list ...map[string]any) any { return map[string]any{"relatedResources": list} }

// related returns the inner keys of the related objects of a type, sorted and joined; "none" without any, "" when the type
// itself is missing.
func (q question) related(typeKey string) string {
	types, _ := q["related"].(map[string]any)
	objects, ok := types[typeKey].(map[string]any)
	switch {
	case !ok:
		return ""
	case len(objects) == 0:
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(objects)), " ")
}

// seeing returns a sync hook that reports the related objects of a type in status.seen.
func seeing(typeKey string) http.Handler {
	return reporting(func(q question) map[string]any { return map[string]any{"seen": q.related(typeKey)} })
}

// configMap creates a ConfigMap that has the stage's label.
func (s *stage) configMap(namespace, name string) {
	s.T.Helper()
	s.create(fixture.ConfigMaps, namespace, name, nil, map[string]string{fixture.Label: s.Name})
}

// testNamespaceSelector is about docs/reference/contract.md#s16.2 and docs/reference/compatibility.md#d16.3.
func testNamespaceSelector(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	first, second := s.Namespace(t), s.Namespace(t)
	st.configMap(first, "a")
	st.configMap(second, "b")
	st.Handle("/sync", seeing("ConfigMap.v1"))
	st.Handle("/customize", answering(func(q question) any {
		if q.parent().GetName() == "witness" {
			return rules(
				map[string]any{"apiVersion": "v1", "resource": "configmaps", "namespace": second, "names": []any{"witnessed"}},
				map[string]any{"apiVersion": "v1", "resource": "namespaces", "names": []any{second}})
		}
		return rules(map[string]any{
			"apiVersion": "v1", "resource": "configmaps",
			"labelSelector":     map[string]any{"matchLabels": map[string]any{fixture.Label: st.Name}},
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"team": st.Name}},
		})
	}))
	st.run(definition{sync: st.at("/sync", v2), customize: st.at("/customize", v2)})
	label := st.followLabels(first, second)

	// The witness is called for the same namespace, and for a ConfigMap that changes later: what it sees, the engine has seen.
	st.create(fixture.ConfigMaps, second, "witnessed", nil, nil)
	st.Parent("witness", nil)
	st.awaitCalls("/sync", "witness", 1)
	st.settled("/sync")
	calls, witnessed := len(st.calls("/sync", "p")), len(st.calls("/sync", "witness"))
	label(second, `"another"`)
	st.awaitCalls("/sync", "witness", witnessed+1)
	st.settled("/sync")
	witnessed = len(st.calls("/sync", "witness"))
	st.In(second).Patch(fixture.ConfigMaps, "b", `{"data":{"changed":"1"}}`)
	st.In(second).Patch(fixture.ConfigMaps, "witnessed", `{"data":{"changed":"1"}}`)
	st.awaitCalls("/sync", "witness", witnessed+1)
	st.settled("/sync")
	if now := len(st.calls("/sync", "p")); now != calls {
		t.Errorf("changes in a namespace that is not selected called the hook %d times", now-calls)
	}
	// A namespace that comes with the label.
	third := st.Namespace + "-late"
	st.create(fixture.Namespaces, "", third, nil, map[string]string{"team": st.Name})
	st.configMap(third, "d")
	st.awaitStatus("p", "seen", joined(first+"/a", first+"/c", third+"/d"))
	st.In(first).Delete(fixture.ConfigMaps, "a")
	st.awaitStatus("p", "seen", joined(first+"/c", third+"/d"))
	if n := len(st.calls("/customize", "p")); n != 1 {
		t.Errorf("the customize hook was called %d times for a parent that did not change, want 1", n)
	}
}

// testInlineNamespaceSelector does the same with inline hooks.
func testInlineNamespaceSelector(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	first, second := s.Namespace(t), s.Namespace(t)
	st.configMap(first, "a")
	st.configMap(second, "b")
	st.run(definition{
		sync: fixture.Inline(t, kind, `status: {seen: "${related.configmaps.size() == 0 ? 'none' :
  related.configmaps.map(c, c.metadata.namespace + '/' + c.metadata.name).join(' ')}"}`),
		customize: fixture.Inline(t, kind, `relatedResources: [{template: {apiVersion: v1, resource: configmaps,
  labelSelector: {matchLabels: {`+fixture.Label+`: `+st.Name+`}}, namespaceSelector: {matchLabels: {team: `+st.Name+`}}}}]`),
	})
	st.followLabels(first, second)
}

// joined are keys as a status has them.
func joined(keys ...string) string {
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// followLabels has a parent see the ConfigMaps of those of two namespaces that are labelled, and returns what labels a namespace.
func (s *stage) followLabels(first, second string) (label func(namespace, value string)) {
	s.T.Helper()
	s.Parent("p", nil)
	s.awaitStatus("p", "seen", "none")
	label = func(namespace, value string) {
		s.In("").Patch(fixture.Namespaces, namespace, `{"metadata":{"labels":{"team":`+value+`}}}`)
	}
	label(first, `"`+s.Name+`"`)
	s.awaitStatus("p", "seen", first+"/a")
	label(second, `"`+s.Name+`"`)
	s.awaitStatus("p", "seen", joined(first+"/a", second+"/b"))
	s.configMap(first, "c")
	s.awaitStatus("p", "seen", joined(first+"/a", first+"/c", second+"/b"))
	label(second, "null")
	s.awaitStatus("p", "seen", joined(first+"/a", first+"/c"))
	return label
}

// testRefusedRules is about the restrictions of docs/reference/contract.md#s16.2. A parent's name says which rule it gets.
func testRefusedRules(t *testing.T, s *shared, kind fixture.Kind) {
	for _, version := range []v1alpha1.HookVersion{v1, v2} {
		t.Run(string(version), func(t *testing.T) {
			st := newStage(t, s, kind)
			cases := refusedRules(st.Namespace, version)
			st.Handle("/sync", fine())
			st.Handle("/customize", answering(func(q question) any { return rules(cases[q.parent().GetName()].rule) }))
			st.run(definition{sync: st.at("/sync", version), customize: st.at("/customize", version)})
			for _, name := range slices.Sorted(maps.Keys(cases)) {
				st.Parent(name, nil)
			}
			for _, name := range slices.Sorted(maps.Keys(cases)) {
				if cases[name].allowed {
					st.awaitStatus(name, "done", "yes")
					st.calm(name)
					continue
				}
				st.syncError(name, "customize hook failed (version="+string(version)+"): "+cases[name].text)
				if n := len(st.calls("/sync", name)); n > 0 {
					t.Errorf("the sync hook was called %d times for %s although its related objects are not known", n, name)
				}
			}
		})
	}
}

// A refusedRule is one of docs/reference/contract.md#s16.2.
type refusedRule struct {
	rule map[string]any
	// text is what the event says; allowed says that the version allows the rule.
	text    string
	allowed bool
}

// refusedRules are those of a version of the customize hook, for parents in a namespace.
func refusedRules(namespace string, version v1alpha1.HookVersion) map[string]refusedRule {
	empty := map[string]any{}
	return map[string]refusedRule{
		"names-and-labels": {
			rule: map[string]any{"apiVersion": "v1", "resource": "configmaps", "names": []any{"a"}, "labelSelector": empty},
			text: "relatedResources[0]: names and labelSelector exclude each other; remove one of them",
		},
		"names-and-namespaces": {
			rule: map[string]any{"apiVersion": "v1", "resource": "configmaps", "names": []any{"a"}, "namespaceSelector": empty},
			text: "relatedResources[0]: names and namespaceSelector exclude each other; remove one of them",
		},
		"namespace-and-namespaces": {
			rule: map[string]any{"apiVersion": "v1", "resource": "configmaps", "namespace": "default", "namespaceSelector": empty},
			text: "relatedResources[0]: namespace and namespaceSelector exclude each other; remove one of them",
		},
		"no-version": {
			rule: map[string]any{"resource": "configmaps"},
			text: "relatedResources[0]: apiVersion is missing",
		},
		"no-resource": {
			rule: map[string]any{"apiVersion": "v1"},
			text: "relatedResources[0]: resource is missing",
		},
		"unknown": {
			rule: map[string]any{"apiVersion": "v1", "resource": "wolpertingers"},
			text: "relatedResources[0] (v1 wolpertingers): resolving the resource: discovery: can't find resource wolpertingers in apiVersion v1",
		},
		"operator": {
			rule: map[string]any{"apiVersion": "v1", "resource": "configmaps", "labelSelector": map[string]any{
				"matchExpressions": []any{map[string]any{"key": "a", "operator": "Like"}},
			}},
			text: `relatedResources[0]: "Like" is not a valid label selector operator`,
		},
		"namespaces-of-cluster-scoped": {
			rule: map[string]any{"apiVersion": "v1", "resource": "namespaces", "namespaceSelector": empty},
			text: "relatedResources[0] (v1 namespaces): namespaceSelector needs a namespaced type; remove it",
		},
		"namespaces": {
			rule: map[string]any{"apiVersion": "v1", "resource": "configmaps", "namespaceSelector": empty},
			text: "relatedResources[0] (v1 configmaps): namespaceSelector reaches beyond the parent's namespace, " +
				"which version v1 of the customize hook does not allow; use v2",
			allowed: version == v2,
		},
		"another-namespace": {
			rule: map[string]any{"apiVersion": "v1", "resource": "configmaps", "namespace": "default"},
			text: `relatedResources[0] (v1 configmaps): namespace "default" is not the parent's namespace "` + namespace +
				`", which version v1 of the customize hook does not allow; use v2`,
			allowed: version == v2,
		},
	}
}

// testInlineRefusedRules does the same with an inline hook, whose rules that lack a kind are refused when it is written.
func testInlineRefusedRules(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	cases := refusedRules(st.Namespace, v2)
	delete(cases, "no-version")
	delete(cases, "no-resource")
	customize := &v1alpha1.InlineHook{}
	for name, tc := range cases {
		raw, err := json.Marshal(tc.rule)
		if err != nil {
			t.Fatal(err)
		}
		customize.RelatedResources = append(customize.RelatedResources, v1alpha1.InlineTemplate{
			When: new(fixture.OfKind(kind, "parent.metadata.name == '"+name+"'")), Template: runtime.RawExtension{Raw: raw},
		})
	}
	st.run(definition{sync: fixture.Inline(t, kind, `status: {done: "yes"}`), customize: &v1alpha1.Hook{Inline: customize}})
	for name := range cases {
		st.Parent(name, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		if cases[name].allowed {
			st.awaitStatus(name, "done", "yes")
			st.calm(name)
			continue
		}
		st.syncError(name, "customize hook failed (version=v2): "+cases[name].text)
	}
}

// testScope is about what related rules reach, and what of it a sync request shows (docs/reference/contract.md#s9, docs/reference/contract.md#s16.2).
func testScope(t *testing.T, s *shared, kind fixture.Kind) {
	for name, tc := range map[string]struct {
		reason     string
		parent     schema.GroupVersionResource
		customized v1alpha1.HookVersion
		synced     v1alpha1.HookVersion
		rule       map[string]any
		typeKey    string
		// want has HERE and THERE for the parent's and another namespace.
		want string
	}{
		"V1LabelsReachTheParentsNamespace": {
			"Without namespace a v1 rule is about the parent's namespace.", fixture.Things, v1, v2,
			map[string]any{"apiVersion": "v1", "resource": "configmaps", "labelSelector": "STAGE"},
			"ConfigMap.v1", "HERE/near",
		},
		"V2LabelsReachAllNamespaces": {
			"v2 lifts the restriction.", fixture.Things, v2, v2,
			map[string]any{"apiVersion": "v1", "resource": "configmaps", "labelSelector": "STAGE"},
			"ConfigMap.v1", "HERE/near THERE/far",
		},
		"V1ShowsThePlainNamesOfTheParentsNamespace": {
			"A v1 sync request has no place for others.", fixture.Things, v2, v1,
			map[string]any{"apiVersion": "v1", "resource": "configmaps", "labelSelector": "STAGE"},
			"ConfigMap.v1", "near",
		},
		"V1NamesAreSoughtEverywhere": {
			"Names without namespace are the exception to the restriction.", fixture.Things, v1, v2,
			map[string]any{"apiVersion": "v1", "resource": "configmaps", "names": []any{"near", "far"}},
			"ConfigMap.v1", "HERE/near THERE/far",
		},
		"V2ReachesAnotherNamespace": {
			"v2 lifts the restriction.", fixture.Things, v2, v2,
			map[string]any{"apiVersion": "v1", "resource": "configmaps", "namespace": "THERE", "labelSelector": "STAGE"},
			"ConfigMap.v1", "THERE/far",
		},
		"V1LeavesOutWhatIsClusterScoped": {
			"The type is there, its objects are not.", fixture.Things, v1, v1,
			map[string]any{"apiVersion": "v1", "resource": "namespaces", "names": []any{"default"}},
			"Namespace.v1", "none",
		},
		"V2ShowsWhatIsClusterScoped": {
			"Under its plain name. The namespace of the rule does not count.", fixture.Things, v2, v2,
			map[string]any{"apiVersion": "v1", "resource": "namespaces", "names": []any{"default"}, "namespace": "THERE"},
			"Namespace.v1", "default",
		},
		"V1OfAClusterScopedParentIsNotRestricted": {
			"There is no namespace to restrict it to.", fixture.ClusterThings, v1, v1,
			map[string]any{"apiVersion": "v1", "resource": "configmaps", "labelSelector": "STAGE"},
			"ConfigMap.v1", "HERE/near THERE/far",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind)
			there := s.Namespace(t)
			st.configMap(st.Namespace, "near")
			st.configMap(there, "far")
			st.Handle("/sync", seeing(tc.typeKey))
			st.Handle("/customize", answering(func(question) any {
				rule := maps.Clone(tc.rule)
				if rule["labelSelector"] == "STAGE" {
					rule["labelSelector"] = map[string]any{"matchLabels": map[string]any{fixture.Label: st.Name}}
				}
				if rule["namespace"] == "THERE" {
					rule["namespace"] = there
				}
				if rule["names"] != nil && tc.typeKey == "ConfigMap.v1" {
					// The names are everywhere in this cluster, so they must be this test's own.
					rule["names"] = []any{"near-" + st.Name, "far-" + st.Name}
				}
				return rules(rule)
			}))
			near, far := "near", "far"
			if tc.rule["names"] != nil {
				near, far = "near-"+st.Name, "far-"+st.Name
				st.configMap(st.Namespace, near)
				st.configMap(there, far)
			}
			st.run(definition{resource: tc.parent, sync: st.at("/sync", tc.synced), customize: st.at("/customize", tc.customized)})
			namespace, parent := st.Namespace, "p"
			if tc.parent == fixture.ClusterThings {
				namespace, parent = "", st.Name
			}
			st.create(tc.parent, namespace, parent, nil, map[string]string{fixture.Label: st.Name})
			words := strings.Fields(tc.want)
			for i := range words {
				words[i] = strings.NewReplacer("HERE", st.Namespace, "THERE", there, "near", near, "far", far).Replace(words[i])
			}
			slices.Sort(words)
			st.awaitStatusOf(tc.parent, namespace, parent, "seen", strings.Join(words, " "))
			if tc.typeKey == "Namespace.v1" && tc.want == "none" {
				st.In("default").AwaitEvent(st.running.Name, "Warning", "RelatedLeftOut", "Set version: v2")
			}
			if t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
}

// testSelection is about docs/reference/contract.md#s16.3: a related object wakes the parents whose rules select it, before or after the change.
func testSelection(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	// Names are sought in all fixture.Namespaces, so they are this test's own.
	one, witnessed := "one-"+st.Name, "witnessed-"+st.Name
	st.Handle("/sync", seeing("ConfigMap.v1"))
	st.Handle("/customize", answering(func(q question) any {
		rule := map[string]any{"apiVersion": "v1", "resource": "configmaps"}
		switch name := q.parent().GetName(); name {
		case "red", "blue":
			rule["labelSelector"] = map[string]any{"matchLabels": map[string]any{"color": name}}
		case "named":
			rule["names"] = []any{one, "two-" + st.Name}
		case "witness":
			rule["names"] = []any{witnessed}
		case "nothing":
			return rules()
		}
		return rules(rule)
	}))
	st.run(definition{sync: st.at("/sync", v1), customize: st.at("/customize", v1)})
	for _, name := range []string{"red", "blue", "named", "nothing"} {
		st.Parent(name, nil)
		st.awaitCalls("/sync", name, 1)
	}
	st.Parent("witness", nil)
	st.create(fixture.ConfigMaps, st.Namespace, witnessed, nil, nil)
	st.awaitCalls("/sync", "witness", 1)
	calls := map[string]int{}
	// called returns the parents whose hook was called since it was asked last. What the witness sees comes after what the
	// others saw.
	called := func() string {
		st.settled("/sync")
		calls["witness"] = len(st.calls("/sync", "witness"))
		st.Patch(fixture.ConfigMaps, witnessed, `{"data":{"n":"`+strconv.Itoa(calls["witness"])+`"}}`)
		st.awaitCalls("/sync", "witness", calls["witness"]+1)
		st.settled("/sync")
		var names []string
		for _, name := range []string{"blue", "named", "nothing", "red"} {
			n := len(st.calls("/sync", name))
			if n > calls[name] {
				names = append(names, name)
			}
			calls[name] = n
		}
		return strings.Join(names, " ")
	}
	called()
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"an object that nobody selects is created", func() { st.create(fixture.ConfigMaps, st.Namespace, "three", nil, nil) }, ""},
		{"a selected object is created", func() {
			st.create(fixture.ConfigMaps, st.Namespace, "four", nil, map[string]string{"color": "red"})
		}, "red"},
		{"it changes", func() { st.Patch(fixture.ConfigMaps, "four", `{"data":{"a":"1"}}`) }, "red"},
		{"its label moves to another parent", func() {
			st.Patch(fixture.ConfigMaps, "four", `{"metadata":{"labels":{"color":"blue"}}}`)
		}, "blue red"},
		{"it loses the label", func() { st.Patch(fixture.ConfigMaps, "four", `{"metadata":{"labels":{"color":null}}}`) }, "blue"},
		{"it changes unselected", func() { st.Patch(fixture.ConfigMaps, "four", `{"data":{"a":"2"}}`) }, ""},
		{"a named object is created, selected twice", func() {
			st.create(fixture.ConfigMaps, st.Namespace, one, nil, map[string]string{"color": "red"})
		}, "named red"},
		{"it is deleted", func() { st.Delete(fixture.ConfigMaps, one) }, "named red"},
		{"an object of that name is created elsewhere", func() {
			there := s.Namespace(t)
			st.create(fixture.ConfigMaps, there, "three", nil, map[string]string{"color": "red"})
		}, ""},
	} {
		step.do()
		if got := called(); got != step.want {
			t.Errorf("when %s the hooks of %q were called, want %q", step.what, got, step.want)
		}
	}
}

// testResponsesAreKept is about docs/reference/compatibility.md#d16.1.
func testResponsesAreKept(t *testing.T, s *shared, kind fixture.Kind) {
	t.Run("OfAParentWithGeneration", func(t *testing.T) {
		st := newStage(t, s, kind)
		st.Handle("/sync", fine())
		st.Handle("/customize", hooktest.Sequence(
			hooktest.Status(http.StatusInternalServerError, "not yet"), answering(func(question) any { return rules() })))
		st.run(definition{sync: st.at("/sync", v1), customize: st.at("/customize", v1)})
		st.Parent("p", map[string]any{"a": "1"})
		st.awaitStatus("p", "done", "yes")
		st.syncError("p", "customize hook failed (version=v1): unsupported status code: 500 body: not yet")
		st.settled("/sync")
		want := 2 // errors are not kept
		for _, step := range []struct {
			patch        string
			subresources []string
			asks         bool
		}{
			{patch: `{"status":{"other":"1"}}`, subresources: []string{"status"}},
			{patch: `{"metadata":{"finalizers":["fixture.example.com/x"]}}`},
			{patch: `{"metadata":{"finalizers":null}}`},
			{patch: `{"spec":{"a":"2"}}`, asks: true},
			{patch: `{"metadata":{"labels":{"b":"1"}}}`, asks: true},
			{patch: `{"metadata":{"annotations":{"b":"1"}}}`, asks: true},
		} {
			before := len(st.Requests("/sync"))
			st.Patch(fixture.Things, "p", step.patch, step.subresources...)
			st.awaitCalls("/sync", "p", before+1)
			st.settled("/sync")
			if step.asks {
				want++
			}
			if got := len(st.Requests("/customize")); got != want {
				t.Errorf("after %s the customize hook had been called %d times, want %d", step.patch, got, want)
				want = got
			}
		}
	})
	t.Run("OfAParentWithoutGeneration", func(t *testing.T) {
		st := newStage(t, s, kind)
		st.Handle("/sync", answering(func(question) any { return map[string]any{} }))
		st.Handle("/customize", answering(func(question) any { return rules() }))
		st.run(definition{resource: fixture.ConfigMaps, sync: st.at("/sync", v1), customize: st.at("/customize", v1)})
		st.configMap(st.Namespace, "p")
		st.awaitCalls("/sync", "p", 1)
		st.settled("/sync")
		before := len(st.Requests("/customize"))
		st.Patch(fixture.ConfigMaps, "p", `{"data":{"a":"1"}}`)
		st.awaitCalls("/customize", "p", before+1)
	})
}

// testLatecomer lets a rule name a kind that is served later than it is asked for.
func testLatecomer(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	st.Handle("/sync", fine())
	resource := fixture.Things
	resource.Resource = "late" + strings.ToLower(string(kind[:4])) + "s"
	st.Handle("/customize", answering(func(question) any {
		return rules(map[string]any{"apiVersion": "fixture.example.com/v1", "resource": resource.Resource})
	}))
	st.run(definition{sync: st.at("/sync", v1), customize: st.at("/customize", v1)})
	st.Parent("p", nil)
	st.syncError("p", "discovery: can't find resource "+resource.Resource+" in apiVersion fixture.example.com/v1")
	st.mends("/customize", func() {
		s.Define(t, cluster.CustomResource{Resource: resource, Kind: "Late" + string(kind[:4])})
	})
	st.awaitStatus("p", "done", "yes")
}

// testInlineLatecomer does the same with inline hooks.
func testInlineLatecomer(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	resource := fixture.Things
	resource.Resource = "later" + strings.ToLower(string(kind[:4])) + "s"
	st.run(definition{
		sync:      fixture.Inline(t, kind, `status: {seen: "${string(related.`+resource.Resource+`.size())}"}`),
		customize: fixture.Inline(t, kind, `relatedResources: [{template: {apiVersion: `+fixture.Group+`/v1, resource: `+resource.Resource+`}}]`),
	})
	st.Parent("p", nil)
	st.syncError("p", "discovery: can't find resource "+resource.Resource+" in apiVersion fixture.example.com/v1")
	s.Define(t, cluster.CustomResource{Resource: resource, Kind: "Later" + string(kind[:4])})
	st.awaitStatus("p", "seen", "0")
}
