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

package related_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

var (
	betaGadgets = cache.Query{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "gadgets"}}
	gadgets     = cache.Query{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}}
)

const (
	beta        = "/apis/example.com/v1beta1"
	served      = `{"name":"gadgets","kind":"Gadget","namespaced":true}`
	betaVersion = "example.com/v1beta1"
)

// change changes what the cluster serves.
func (s *scene) change(do func(apis map[string]string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(s.apis)
}

// hold relates a parent to an object, whose informer nothing but the customizer holds then.
func (s *scene) hold(p *object.Object, q cache.Query, name string) {
	s.t.Helper()
	if _, err := s.related(p); err == nil {
		s.t.Fatal("related objects were not waited for")
	}
	informer := s.cluster.Cache.Acquire(q)
	defer informer.Release()
	if err := informer.Replace([]any{parse(s.t, "Object", "ns", name, 2, "")}, "9"); err != nil {
		s.t.Fatal(err)
	}
	if names, err := s.related(p); err != nil || !slices.Equal(names, []string{name}) {
		s.t.Fatalf("related objects are %v, %v, want %s", names, err, name)
	}
}

// kindsChanged returns the names of the parents that are to be asked about again.
func (s *scene) kindsChanged() []string {
	var names []string
	for _, key := range s.KindsChanged(s.t.Context()) {
		names = append(names, key.Name)
	}
	return names
}

// TestARuleThatNamesWhatCannotBeListedFails has the rule named in an error in place of waiting for an informer that is never filled.
func TestARuleThatNamesWhatCannotBeListedFails(t *testing.T) {
	for name, tc := range map[string]struct {
		verbs string
		fails bool
	}{
		"create only":      {`["create"]`, true},
		"list":             {`["get","list"]`, false},
		"nothing is known": {`[]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, hook.RelatedResourceRule{APIVersion: betaVersion, Resource: "gadgets", Namespace: "ns"})
			s.change(func(apis map[string]string) {
				apis[beta] = `{"name":"gadgets","kind":"Gadget","namespaced":true,"verbs":` + tc.verbs + `}`
			})
			_, err := s.related(parse(t, "Thing", "ns", "p", 1, ""))
			if err == nil {
				t.Fatal("related objects were not waited for")
			}
			if fails := strings.Contains(err.Error(), "relatedResources[0] (example.com/v1beta1 gadgets): resolving the resource: its objects cannot be listed"); fails != tc.fails {
				t.Errorf("the error is %q", err)
			}
		})
	}
}

func TestTheHookIsAskedAgainWhenItsKindsAreServedInAnotherWay(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(s *scene)
		// again says that the hook is asked again, and gone that the informer is given back.
		again, gone bool
	}{
		"the version is gone": {
			"The hook may name another version by now, and the informer can only fail.",
			func(s *scene) { s.change(func(apis map[string]string) { delete(apis, beta) }) }, true, true,
		},
		"the kind is gone": {
			"The version has other kinds still.",
			func(s *scene) {
				s.change(func(apis map[string]string) { apis[beta] = `{"name":"others","kind":"Other"}` })
			}, true, true,
		},
		"another scope": {
			"Which namespace a rule means depends on the scope.",
			func(s *scene) {
				s.change(func(apis map[string]string) { apis[beta] = `{"name":"gadgets","kind":"Gadget"}` })
			}, true, false,
		},
		"another name of the kind": {
			"The sync hook is shown the objects under it.",
			func(s *scene) {
				s.change(func(apis map[string]string) { apis[beta] = `{"name":"gadgets","kind":"Device","namespaced":true}` })
			}, true, false,
		},
		"another version comes": {
			"The one that the rule names is served as before.",
			func(s *scene) { s.change(func(apis map[string]string) { apis["/apis/example.com/v1"] = served }) }, false, false,
		},
		"nothing": {
			"Most changes are about kinds that no rule names.", func(*scene) {}, false, false,
		},
		"nobody says": {
			"An API server that does not say what it serves has not said that the kind is gone.",
			func(s *scene) { s.change(func(map[string]string) { s.unavailable = true }) }, false, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule := hook.RelatedResourceRule{APIVersion: betaVersion, Resource: "gadgets", Namespace: "ns"}
			s := newScene(t, rule)
			s.change(func(apis map[string]string) { apis[beta] = served })
			p, other := parse(t, "Thing", "ns", "p", 1, ""), parse(t, "Thing", "ns", "other", 1, "")
			s.hold(p, betaGadgets, "a")
			s.rules[0] = hook.RelatedResourceRule{APIVersion: "v1", Resource: "configmaps"}
			s.hold(other, configMaps, "b")
			s.rules[0] = rule
			asked := s.calls

			tc.change(s)
			var want []string
			if tc.again {
				want = []string{"p"}
				asked++
			}
			if got := s.kindsChanged(); !slices.Equal(got, want) {
				t.Errorf("%s To be asked about again: %v, want %v", tc.reason, got, want)
			}
			s.expectHeld(tc.reason, betaGadgets, !tc.gone)
			s.expectHeld("the other parent needs it", configMaps, true)
			if _, err := s.related(other); err != nil {
				t.Error(err)
			}
			if _, err := s.related(p); (err != nil) != tc.gone {
				t.Errorf("%s The error is %v", tc.reason, err)
			}
			if s.calls != asked {
				t.Errorf("%s The hook was called %d times, want %d", tc.reason, s.calls, asked)
			}
			if got := s.kindsChanged(); len(got) > 0 {
				t.Errorf("%s After the hook was asked, to be asked about again: %v", tc.reason, got)
			}
		})
	}
}

func TestAHookThatNamesTheVersionThatIsServedNow(t *testing.T) {
	s := newScene(t, hook.RelatedResourceRule{APIVersion: betaVersion, Resource: "gadgets"})
	s.change(func(apis map[string]string) { apis[beta] = served })
	s.show(betaGadgets, parse(t, "Gadget", "ns", "old", 2, ""))
	p := parse(t, "Thing", "ns", "p", 1, "")
	if names, err := s.related(p); err != nil || !slices.Equal(names, []string{"old"}) {
		t.Fatalf("related objects are %v, %v, want old", names, err)
	}
	s.change(func(apis map[string]string) {
		delete(apis, beta)
		apis["/apis/example.com/v1"] = served
	})
	s.kindsChanged()
	if _, err := s.related(p); err == nil {
		t.Error("the hook names the former version, and there is no error")
	}
	s.rules = []hook.RelatedResourceRule{{APIVersion: "example.com/v1", Resource: "gadgets"}}
	s.show(gadgets, parse(t, "Gadget", "ns", "new", 3, ""))
	if names, err := s.related(p); err != nil || !slices.Equal(names, []string{"new"}) {
		t.Errorf("related objects are %v, %v, want new", names, err)
	}
}

// TestAParentThatIsFinalizedNeedsNoKindThatIsGone has a kind that a rule names served no more.
func TestAParentThatIsFinalizedNeedsNoKindThatIsGone(t *testing.T) {
	const group, deleted = "/apis/example.com", `,"deletionTimestamp":"2026-01-01T00:00:00Z","generation":2`
	for name, tc := range map[string]struct {
		reason   string
		apis     map[string]string
		fresh    bool
		metadata string
		keys     []string
		err      string
	}{
		"uninstalled": {
			reason:   "There are no objects, and the hook may look for the entry.",
			metadata: deleted, keys: []string{"ConfigMap.v1", "Gadget.example.com/v1beta1"},
		},
		"uninstalled before this process began": {
			reason: "Nothing says what the kind was.", fresh: true,
			metadata: deleted, keys: []string{"ConfigMap.v1"},
		},
		"served in another version": {
			reason: "There may be objects, which the hook would not know.", apis: map[string]string{
				group: `{"kind":"APIGroup","apiVersion":"v1","versions":[{"version":"v1"}]}`, group + "/v1": served,
			}, metadata: deleted, err: "it is served as example.com/v1, which the customize hook has to name",
		},
		"nobody says": {
			reason: "An API server that does not respond has not said that there are none.", apis: map[string]string{group: "unavailable"},
			metadata: deleted, err: "asking for the versions of the group",
		},
		"not finalized": {
			reason: "The sync hook would take the objects for deleted ones.", metadata: `,"generation":2`,
			err: "can't find resource gadgets in apiVersion example.com/v1beta1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told []related.Type
			s := newSceneWith(t, related.Config{Gone: func(_ parent.Key, _ *object.Object, gone []related.Type) { told = append(told, gone...) }},
				hook.RelatedResourceRule{APIVersion: betaVersion, Resource: "gadgets", Namespace: "ns"},
				hook.RelatedResourceRule{APIVersion: "v1", Resource: "configmaps", Namespace: "ns"})
			s.show(configMaps, parse(t, "ConfigMap", "ns", "a", 2, ""))
			if !tc.fresh {
				s.change(func(apis map[string]string) { apis[beta] = served })
				s.show(betaGadgets, parse(t, "Gadget", "ns", "g", 3, ""))
				if names, err := s.related(parse(t, "Thing", "ns", "p", 1, `,"generation":1`)); err != nil || len(names) != 2 {
					t.Fatalf("related objects are %v, %v", names, err)
				}
				s.change(func(apis map[string]string) { delete(apis, beta) })
			}
			s.change(func(apis map[string]string) { maps.Copy(apis, tc.apis) })
			s.kindsChanged()

			p := parse(t, "Thing", "ns", "p", 4, tc.metadata)
			for range 2 {
				groups, err := s.Related(t.Context(), s.asked(controllerJSON, p))
				var keys []string
				for _, g := range groups {
					if keys = append(keys, g.Key); len(g.Objects) > 0 && g.Key != "ConfigMap.v1" {
						t.Errorf("%s has objects", g.Key)
					}
				}
				if !slices.Equal(keys, tc.keys) || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%s The entries are %v, %v; want %v, %q", tc.reason, keys, err, tc.keys, tc.err)
				}
			}
			if want := min(len(tc.keys), 1); len(told) != want {
				t.Errorf("%d times it was told, want %d", len(told), want)
			}
			if tc.err != "" {
				return
			}
			if again := s.kindsChanged(); len(again) > 0 {
				t.Errorf("The hook is to be asked again about %v, and nothing changed", again)
			}
			s.change(func(apis map[string]string) { apis[beta] = served })
			if again := s.kindsChanged(); !slices.Equal(again, []string{"p"}) {
				t.Errorf("The kind is back, and the hook is to be asked again about %v", again)
			}
		})
	}
}

func TestARuleIsReadForTheScopeThatItsKindHasNow(t *testing.T) {
	s := newScene(t, hook.RelatedResourceRule{APIVersion: betaVersion, Resource: "gadgets", Namespace: "ns"})
	s.change(func(apis map[string]string) { apis[beta] = served })
	s.show(betaGadgets)
	p := parse(t, "Thing", "ns", "p", 1, "")
	if _, err := s.related(p); err != nil {
		t.Fatal(err)
	}
	s.change(func(apis map[string]string) { apis[beta] = `{"name":"gadgets","kind":"Gadget"}` })
	s.show(betaGadgets, parse(t, "Gadget", "", "everywhere", 3, ""))
	s.kindsChanged()
	if names, err := s.related(p); err != nil || !slices.Equal(names, []string{"everywhere"}) {
		t.Errorf("related objects are %v, %v, want the one without a namespace", names, err)
	}
}

func TestAResponseIsKeptForTheControllerThatItsRequestHeld(t *testing.T) {
	s := newScene(t, hook.RelatedResourceRule{APIVersion: "v1", Resource: "configmaps"})
	s.show(configMaps)
	p := parse(t, "Thing", "ns", "p", 1, "")
	selecting := func(what string) string {
		return `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"annotations":{"select":"` + what + `"}}}`
	}
	before, after := selecting("few"), selecting("many")
	for i, step := range []struct {
		reason     string
		controller string
		calls      int
	}{
		{"nothing is remembered", before, 1},
		{"nothing changed", before, 1},
		{"an annotation of the controller changed", after, 2},
		{"nothing changed since", after, 2},
		{"it was changed back, and only the last response is remembered", before, 3},
	} {
		if _, err := s.relatedFor(step.controller, p); err != nil || s.calls != step.calls {
			t.Errorf("step %d, %s: the hook was called %d times, %v; want %d", i, step.reason, s.calls, err, step.calls)
		}
	}
}
