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

package inline

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// node is a value of a template.
type node interface {
	// eval returns the value, and false when it is left out.
	eval(s *scope) (value any, present bool, err error)
}

type (
	literal  struct{ value any }
	computed struct{ e *expression }
	// joined is a text of literal parts and expressions.
	joined struct{ parts []joint }
	joint  struct {
		text string
		e    *expression // nil for a literal part
	}
	mapNode struct {
		names  []string
		values []node
	}
	listNode struct{ elements []node }
)

// templating compiles templates for one kind.
type templating struct {
	*compiler
	env    *cel.Env
	wanter string
}

// parse decodes a template.
func (c *compiler) parse(raw []byte, path *field.Path) (map[string]any, bool) {
	var content any
	if len(raw) == 0 {
		raw = []byte("null")
	}
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		c.failf(path, "", "is not valid JSON: %v", err)
		return nil, false
	}
	tree, ok := content.(map[string]any)
	if !ok {
		c.errs = append(c.errs, field.Required(path, "an object"))
	}
	return tree, ok
}

// node compiles a value, and checks it against its shape. It returns nil when something in it is wrong.
func (t *templating) node(value any, s shape, path *field.Path, depth int) node {
	t.nodes++
	switch {
	case t.nodes > maxNodes:
		if t.nodes == maxNodes+1 {
			t.failf(path, "", "is value %d in the templates of this hook, and %d is the most", t.nodes, maxNodes)
		}
		return nil
	case depth > maxDepth:
		t.failf(path, "", "is nested deeper than %d", maxDepth)
		return nil
	}
	switch value := value.(type) {
	case map[string]any:
		return t.mapNode(value, s, path, depth)
	case []any:
		return t.listNode(value, s, path, depth)
	case string:
		return t.text(value, s, path)
	case nil:
		return literal{}
	default:
		return t.scalar(value, s, path)
	}
}

func (t *templating) mapNode(value map[string]any, s shape, path *field.Path, depth int) node {
	class := s.class()
	if class != object && class != mapping && class != anything {
		t.failf(path, "", "is an object, %s wants %s", t.wanter, s.wants())
		return nil
	}
	n, sound := mapNode{}, true
	for _, name := range slices.Sorted(maps.Keys(value)) {
		at := path.Child(name)
		if class == mapping {
			at = path.Key(name)
		}
		within, ok := s.field(name)
		switch {
		case len(name) > maxName:
			t.failf(path, name, "names of fields are no longer than %d bytes", maxName)
			sound = false
			continue
		case strings.Contains(name, "${"):
			t.failf(path, name, "names of fields are literal: use an expression that yields a map")
			sound = false
			continue
		case !ok:
			t.failf(at, name, "%s has no field %s%s", s.path, name, fits(name, s.names()))
			sound = false
			continue
		}
		child := t.node(value[name], within, at, depth+1)
		sound = sound && child != nil
		n.names, n.values = append(n.names, name), append(n.values, child)
	}
	if class == object {
		for _, name := range s.required() {
			if _, ok := value[name]; !ok {
				t.errs = append(t.errs, field.Required(path.Child(name), s.path+" needs it"))
				sound = false
			}
		}
	}
	if !sound {
		return nil
	}
	return n
}

func (t *templating) listNode(value []any, s shape, path *field.Path, depth int) node {
	if class := s.class(); class != list && class != anything {
		t.failf(path, "", "is a list, %s wants %s", t.wanter, s.wants())
		return nil
	}
	n, sound := listNode{}, true
	for i, element := range value {
		child := t.node(element, s.items(), path.Index(i), depth+1)
		sound = sound && child != nil
		n.elements = append(n.elements, child)
	}
	if !sound {
		return nil
	}
	return n
}

// scalar checks a literal number or boolean.
func (t *templating) scalar(value any, s shape, path *field.Path) node {
	var given *cel.Type
	switch value.(type) {
	case bool:
		given = cel.BoolType
	case int64:
		given = cel.IntType
	default:
		given = cel.DoubleType
	}
	if _, ok := t.registry.fits(given, s, 0); !ok {
		t.failf(path, value, "is %s, %s wants %s", typeName(given), t.wanter, s.wants())
		return nil
	}
	return literal{value}
}

// text compiles a string: literal, one expression, or both joined.
func (t *templating) text(value string, s shape, path *field.Path) node {
	parts, err := split(value)
	if err != nil {
		t.failf(path, value, "%v", err)
		return nil
	}
	if len(parts) == 1 && parts[0].expression {
		return t.computed(parts[0].source, s, path)
	}
	if _, ok := t.registry.fits(cel.StringType, s, 0); !ok {
		hint := ""
		if len(parts) == 2 && strings.TrimSpace(parts[1].source) == "" {
			hint = ": the end of the line after the brace makes it text, write |- or >-"
		}
		t.failf(path, value, "is string, %s wants %s%s", t.wanter, s.wants(), hint)
		return nil
	}
	n, constant := joined{}, strings.Builder{}
	for _, part := range parts {
		if !part.expression {
			constant.WriteString(part.source)
			n.parts = append(n.parts, joint{text: part.source})
			continue
		}
		e := t.joinable(part.source, path)
		if e == nil {
			return nil
		}
		n.parts = append(n.parts, joint{e: e})
	}
	if len(parts) > 1 {
		return n
	}
	if !t.allowed(constant.String(), s, path) {
		return nil
	}
	return literal{constant.String()}
}

// allowed checks a literal against the values that a schema lists.
func (t *templating) allowed(value string, s shape, path *field.Path) bool {
	if s.schema == nil || len(s.schema.Enum) == 0 || slices.Contains(s.schema.Enum, any(value)) {
		return true
	}
	var valid []string
	for _, each := range s.schema.Enum {
		if text, ok := each.(string); ok {
			valid = append(valid, text)
		}
	}
	t.errs = append(t.errs, field.NotSupported(path, value, valid))
	return false
}

// computed compiles an expression that yields a whole value.
func (t *templating) computed(source string, s shape, path *field.Path) node {
	e := t.compile(t.env, path, source)
	if e == nil {
		return nil
	}
	f := &fitting{compiler: t.compiler, e: e, path: path, wanter: t.wanter}
	if !f.check(e.ast.Expr(), s) {
		return nil
	}
	if e = t.plan(t.env, path, e); e == nil {
		return nil
	}
	return computed{e}
}

// joinable compiles an expression within a text.
func (t *templating) joinable(source string, path *field.Path) *expression {
	e := t.compile(t.env, path, source)
	if e == nil {
		return nil
	}
	switch e.out.Kind() {
	case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.DynKind:
	default:
		hint := ""
		if isOptional(e.out) {
			hint = "; use orValue"
		}
		t.failf(path, source, "yields %s, a text is made of strings, numbers and booleans%s%s", typeName(e.out), hint, position(1, 1))
		return nil
	}
	return t.plan(t.env, path, e)
}

// literalString returns a field of a template that is a literal string.
func literalString(tree map[string]any, name string) (string, bool) {
	value, ok := tree[name].(string)
	if !ok || value == "" {
		return "", false
	}
	parts, err := split(value)
	return value, err == nil && !slices.ContainsFunc(parts, func(p part) bool { return p.expression })
}
