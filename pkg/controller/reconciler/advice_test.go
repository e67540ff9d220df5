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

package reconciler_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// state is that of a controller and its parents, as far as advice depends on it.
type state struct {
	decorator bool
	// generates is generateSelector, which decorators do not have.
	generates bool
	// origin is that of the kind of the parents.
	origin discovery.Origin
	// copies says that the hook copies the labels of the parent to children.
	copies bool
	// itself says that the hook returns the parent as a child.
	itself bool
}

func (s state) String() string {
	return fmt.Sprintf("decorator=%v generates=%v origin=%v copies=%v itself=%v", s.decorator, s.generates, s.origin, s.copies, s.itself)
}

// states are all that there are.
func states() (list []state) {
	both := []bool{false, true}
	for _, origin := range []discovery.Origin{discovery.Unknown, discovery.BuiltIn, discovery.Custom, discovery.Aggregated} {
		for _, decorator := range both {
			for _, generates := range both {
				for _, copies := range both {
					for _, itself := range both {
						if !decorator || !generates {
							list = append(list, state{decorator, generates, origin, copies, itself})
						}
					}
				}
			}
		}
	}
	return list
}

// bound are words of advice, each with the states in which somebody can follow it.
var bound = map[string]func(state) bool{
	"CustomResourceDefinition": func(s state) bool { return s.origin == discovery.Custom || s.origin == discovery.Unknown },
	"controller of Kubernetes": func(s state) bool { return s.origin == discovery.BuiltIn },
	"generateSelector":         func(s state) bool { return !s.decorator && !s.generates },
	"copied":                   func(s state) bool { return s.copies },
	"adopt it":                 func(s state) bool { return !s.decorator && !s.itself },
	"delete or rename":         func(s state) bool { return !s.itself },
	"RollingRecreate":          func(s state) bool { return !s.decorator },
	"CompositeController":      func(s state) bool { return !s.decorator },
	"annotations":              func(s state) bool { return s.decorator },
	"attachment":               func(s state) bool { return s.decorator },
	"children":                 func(s state) bool { return !s.decorator },
}

// scattered are the words of bound that no function of the engine may use but those of the table.
var scattered = []string{"CustomResourceDefinition", "controller of Kubernetes", "generateSelector", "adopt it", "RollingRecreate"}

var (
	rings   = schema.GroupResource{Group: "example.com", Resource: "rings"}
	leaf    = children.Key{Kind: "ConfigMap", Name: "leaf"}
	invalid = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"no"}`
)

// advices are all texts with advice that depends on the state, by the functions that decide on them, and whether they are given in a state.
var advices = []struct {
	function string
	given    func(state) bool
	text     func(*testing.T, state) string
}{
	{
		"matching", func(s state) bool { return !s.decorator },
		func(_ *testing.T, s state) string {
			selector, returned := labels.Set{"app": "mine"}, "another"
			scope := children.Scope{Inherited: labels.Set{"controller-uid": "outer", "app": "outer"}}
			if s.generates {
				selector = labels.Set{"controller-uid": "mine"}
				scope.Labels = selector
			}
			if s.copies {
				returned = "outer"
			}
			scope.Selector = selector.AsSelector()
			rules := children.NewRules([]children.Rule{{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}})
			_, _, err := children.Validate(scope, rules, []map[string]any{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
				"name": "leaf", "labels": map[string]any{"controller-uid": returned, "app": returned},
			}}})
			return fmt.Sprint(err)
		},
	},
	{
		"NoSelector", func(s state) bool { return !s.decorator && !s.generates },
		func(_ *testing.T, s state) string { return reconciler.NoSelector(s.origin).Error() },
	},
	{
		"statusIgnored", func(s state) bool { return !s.decorator },
		func(_ *testing.T, s state) string { return reconciler.StatusIgnored(rings, s.origin) },
	},
	{
		"syncedNotKept", func(state) bool { return true },
		func(_ *testing.T, s state) string { return reconciler.SyncedNotKept(rings, s.origin) },
	},
	{
		"statusIncomplete", func(state) bool { return true },
		func(t *testing.T, s state) string {
			return reconciler.StatusIncomplete([]string{"status.phase"}, thing(t, "p", 1, "", ""), rings, s.origin)
		},
	},
	{
		"statusRefused", func(s state) bool { return s.origin == discovery.BuiltIn },
		func(t *testing.T, _ state) string {
			return reconciler.StatusRefused([]string{"status.phase"}, thing(t, "p", 1, "", ""), rings)
		},
	},
	{
		"advice", func(state) bool { return true },
		func(t *testing.T, s state) string {
			api, err := client.New(&rest.Config{Host: "http://api.invalid", Transport: transport(func(*http.Request) (int, string) {
				return http.StatusUnprocessableEntity, invalid
			})})
			if err != nil {
				t.Fatal(err)
			}
			changes := parent.Changes{Status: map[string]any{"phase": "X"}, BuiltIn: s.origin == discovery.BuiltIn}
			_, err = changes.Write(t.Context(), api, client.Target{Resource: things.GroupVersionResource, Name: "p"}, thing(t, "p", 1, "", ""))
			return fmt.Sprint(err)
		},
	},
	{
		"ConflictError.Error", func(state) bool { return true },
		func(_ *testing.T, s state) string {
			return (&apply.ConflictError{Key: leaf, Parent: "Ring p", Itself: s.itself, Attaches: s.decorator}).Error()
		},
	},
	{
		"InvalidError.Error", func(state) bool { return true },
		func(_ *testing.T, s state) string {
			return (&apply.InvalidError{Causes: []string{"spec.a: field is immutable"}, Immutable: true, Attaches: s.decorator}).Error()
		},
	},
}

func TestAdviceFitsTheState(t *testing.T) {
	for _, a := range advices {
		seen := map[string]bool{}
		for _, s := range states() {
			if !a.given(s) {
				continue
			}
			text := a.text(t, s)
			for words, fits := range bound {
				if strings.Contains(text, words) && !fits(s) {
					t.Errorf("%s: with %s it says %q, in %q", a.function, s, words, text)
				}
			}
			if !seen[text] {
				t.Logf("%s: %s", a.function, text)
			}
			seen[text] = true
		}
	}
}

// TestAllAdviceIsInTheTable finds functions of the engine that give advice which fits only some states, and that the table lacks.
func TestAllAdviceIsInTheTable(t *testing.T) {
	for _, root := range []string{"../../children", "..", "../../hook/wire"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, declaration := range file.Decls {
				name := "a variable"
				if function, ok := declaration.(*ast.FuncDecl); ok {
					name = function.Name.Name
				}
				ast.Inspect(declaration, func(node ast.Node) bool {
					literal, ok := node.(*ast.BasicLit)
					if !ok || literal.Kind != token.STRING {
						return true
					}
					says := func(words string) bool { return strings.Contains(literal.Value, words) }
					if at := slices.IndexFunc(scattered, says); at >= 0 && !inTable(name) {
						t.Errorf("%s: %s says %q in %s and is not in the table", path, name, scattered[at], literal.Value)
					}
					return true
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func inTable(function string) bool {
	for _, a := range advices {
		if _, method, found := strings.Cut(a.function, "."); a.function == function || found && method == function {
			return true
		}
	}
	return false
}
