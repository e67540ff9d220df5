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
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// Program is one inline hook, compiled.
type Program struct {
	name      hook.Name
	decorator bool
	// openRelated says that related objects are found by the keys of the protocol.
	openRelated bool
	// children and related are the keys of the protocol for the fields that expressions use. They are empty for kinds that are not known.
	children, related map[string]string
	// readsStatus is what ReadsStatus returns.
	readsStatus bool

	variables           []variable
	templates, rules    []template
	labels, annotations node
	status              node
	resyncAfter         node
	finalized, remove   node
}

type variable struct {
	name string
	e    *expression
}

type template struct {
	path      string
	when      *expression
	iterators []iterator
	node      node
}

type iterator struct {
	name string
	in   *expression
}

// ReadsStatus reports whether what the hook returns may depend on the status of the parent, or on a field of its metadata that each write of the
// parent changes.
func (p *Program) ReadsStatus() bool { return p.readsStatus }

// Call evaluates the hook, and returns the body of its response. The request is that of a webhook; for a customize hook it has a
// controller and a parent. The error says where in the controller object it arose. A context that has ended ends the call before its next expression.
func (p *Program) Call(ctx context.Context, r wire.Request) ([]byte, error) {
	s := p.scope(r)
	s.budget.ended = ctx.Err
	body := map[string]any{}
	if p.name == hook.Customize {
		rules, err := evalAll(p.rules, s)
		if err != nil {
			return nil, err
		}
		body["relatedResources"] = rules
		return encode(body, s.budget.texts)
	}
	children, err := evalAll(p.templates, s)
	if err != nil {
		return nil, err
	}
	if body["children"] = children; p.decorator {
		body = map[string]any{"attachments": children}
	}
	for _, part := range []struct {
		name string
		node node
	}{
		{"labels", p.labels},
		{"annotations", p.annotations},
		{"status", p.status},
		{"resyncAfterSeconds", p.resyncAfter},
		{"finalized", p.finalized},
		{"delete", p.remove},
	} {
		if part.node == nil {
			continue
		}
		value, present, err := part.node.eval(s)
		if err != nil {
			return nil, p.locate(part.name, err)
		}
		if present {
			body[part.name] = value
		}
	}
	encoded, err := encode(body, s.budget.texts)
	if err != nil {
		return nil, fmt.Errorf("encoding the response of the inline %s hook: %w", p.name, err)
	}
	return encoded, nil
}

// locate names the place of an error that no expression has.
func (p *Program) locate(field string, err error) error {
	return located(fmt.Sprintf("spec.hooks.%s.inline.%s", p.name, field), err)
}

func located(path string, err error) error {
	if e, ok := errors.AsType[*expressionError](err); ok {
		return e
	}
	return &expressionError{path: path, err: err}
}

// evalAll returns the objects of all templates.
func evalAll(templates []template, s *scope) ([]any, error) {
	objects := []any{}
	for i := range templates {
		t := &templates[i]
		if t.when != nil {
			wanted, err := t.when.run(s)
			if err != nil {
				return nil, err
			}
			b, ok := wanted.(types.Bool)
			if !ok {
				return nil, t.when.failf("yields %s, when wants boolean", wanted.Type().TypeName())
			}
			if !bool(b) {
				continue
			}
		}
		if err := t.each(s, t.iterators, &objects); err != nil {
			return nil, located(t.path, err)
		}
	}
	return objects, nil
}

// each adds the objects for all combinations of the elements of iterators.
func (t *template) each(s *scope, iterators []iterator, objects *[]any) error {
	if len(iterators) == 0 {
		if len(*objects) >= maxObjects {
			return fmt.Errorf("makes more than %d objects with those before it", maxObjects)
		}
		value, _, err := t.node.eval(s)
		*objects = append(*objects, value)
		return err
	}
	next := iterators[0]
	elements, err := next.in.run(s)
	if err != nil {
		return err
	}
	if optional, ok := elements.(*types.Optional); ok && optional.HasValue() {
		elements = optional.GetValue()
	}
	l, ok := elements.(traits.Lister)
	if !ok {
		return next.in.failf("yields %s, in wants list", elements.Type().TypeName())
	}
	for it := l.Iterator(); it.HasNext() == types.True; {
		s.budget.cost--
		if err := t.each(s.with(next.name, it.Next()), iterators[1:], objects); err != nil {
			return err
		}
	}
	return nil
}

// scope returns the variables of a call. Each is decoded or evaluated when it is first used.
func (p *Program) scope(r wire.Request) *scope {
	s := &scope{budget: &budget{cost: maxSyncCost, bytes: maxResponseBytes}}
	parentName, childrenName := variableNames(p.decorator)
	makers := map[string]func() ref.Val{
		parentName:   func() ref.Val { return s.decoded("the parent", r.Parent.JSON()) },
		"controller": func() ref.Val { return s.decoded("the controller", r.Controller) },
		childrenName: func() ref.Val { return p.objects(s, r, r.Children, p.children) },
		"related":    func() ref.Val { return p.relatedObjects(s, r) },
		"variables":  func() ref.Val { return p.variableValues(s) },
	}
	values := map[string]ref.Val{
		trueVariable: types.True, truthVariable: types.DefaultTypeAdapter.NativeToValue(map[bool]bool{true: true, false: false}),
	}
	s.resolve = func(name string) (any, bool) {
		if value, ok := values[name]; ok {
			return value, true
		}
		if maker, ok := makers[name]; ok {
			values[name] = maker()
			return values[name], true
		}
		return nil, false
	}
	return s
}

func (s *scope) decoded(what string, data []byte) ref.Val {
	value, err := decode(data, s.budget)
	if err != nil {
		return types.WrapErr(fmt.Errorf("decoding %s: %w", what, err))
	}
	return value
}

func (p *Program) objects(s *scope, r wire.Request, groups []wire.Group, keys map[string]string) ref.Val {
	fields := make(map[string]any, len(keys))
	for name, key := range keys {
		fields[name] = &objects{budget: s.budget, groups: groups, key: key, parentNamespace: r.Parent.Namespace()}
		if err := unservedError(groups, keys); key == "" && err != nil {
			fields[name] = types.WrapErr(err)
		}
	}
	return types.DefaultTypeAdapter.NativeToValue(fields)
}

// unservedError returns an error if there are objects of a kind that was not served when the hook was compiled: without them, an expression would count
// what is there as gone.
func unservedError(groups []wire.Group, keys map[string]string) error {
	known := slices.Collect(maps.Values(keys))
	for _, group := range groups {
		if len(group.Objects) > 0 && !slices.Contains(known, group.Key) {
			return fmt.Errorf("%s was not served when the hook was compiled, and there are objects of it; it is compiled again when it is served", group.Key)
		}
	}
	return nil
}

func (p *Program) relatedObjects(s *scope, r wire.Request) ref.Val {
	if !p.openRelated {
		return p.objects(s, r, r.Related, p.related)
	}
	keys := map[string]string{}
	for _, group := range r.Related {
		keys[group.Key] = group.Key
	}
	return p.objects(s, r, r.Related, keys)
}

// variableValues is a map whose values are evaluated when they are first used.
func (p *Program) variableValues(s *scope) ref.Val {
	lazily := &lazyMap{values: map[string]ref.Val{}, makers: map[string]func() ref.Val{}}
	for _, v := range p.variables {
		lazily.makers[v.name] = func() ref.Val {
			value, err := v.e.run(s)
			if err != nil {
				return types.WrapErr(err)
			}
			return value
		}
	}
	return lazily
}
