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
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// fitting checks what an expression yields against the shape of the field that takes it. It looks into literals of maps and lists,
// conditions and macros, so that the error is at the part that is wrong.
type fitting struct {
	*compiler
	e    *expression
	path *field.Path
	// wanter is who wants the value: the kind of the object, or the name of the field.
	wanter string
}

// check reports the first difference, and returns false if there is one.
func (f *fitting) check(e ast.Expr, s shape) bool {
	if s.class() == anything {
		return true
	}
	switch e.Kind() {
	case ast.MapKind:
		return f.checkMap(e, s)
	case ast.ListKind:
		return f.checkList(e, s)
	case ast.CallKind:
		if call := e.AsCall(); call.FunctionName() == operators.Conditional {
			return f.check(call.Args()[1], s) && f.check(call.Args()[2], s)
		}
	case ast.ComprehensionKind:
		if element := mapped(e.AsComprehension()); element != nil && s.class() == list {
			return f.check(element, s.items())
		}
	default:
	}
	t := f.e.ast.GetType(e.ID())
	f.registry.compared = 0
	if why, ok := f.registry.fits(t, s, 0); !ok {
		return f.refuse(e, "yields %s, %s wants %s%s", typeName(t), f.wanter, s.wants(), why)
	}
	return true
}

func (f *fitting) refuse(e ast.Expr, format string, args ...any) bool {
	f.failf(f.path, f.e.source, "%s%s", fmt.Sprintf(format, args...), f.e.start(e))
	return false
}

func (f *fitting) checkMap(e ast.Expr, s shape) bool {
	if class := s.class(); class != object && class != mapping {
		return f.refuse(e, "yields a map, %s wants %s", f.wanter, s.wants())
	}
	given, all := map[string]bool{}, true
	for _, entry := range e.AsMap().Entries() {
		key, value := entry.AsMapEntry().Key(), entry.AsMapEntry().Value()
		if t := f.e.ast.GetType(key.ID()); t.Kind() != types.StringKind && t.Kind() != types.DynKind {
			return f.refuse(key, "has a key of type %s, and keys are strings", typeName(t))
		}
		within := s.values()
		if key.Kind() == ast.LiteralKind {
			name, _ := key.AsLiteral().Value().(string)
			property, ok := s.field(name)
			if !ok {
				return f.refuse(key, "%s has no field %s%s", s.path, name, fits(name, s.names()))
			}
			given[name], within = true, property
		} else {
			all = false // A key that is not known may be any.
		}
		if !f.check(value, within) {
			return false
		}
	}
	if !all || s.class() != object {
		return true
	}
	for _, name := range s.required() {
		if !given[name] {
			return f.refuse(e, "%s needs the field %s", s.path, name)
		}
	}
	return true
}

func (f *fitting) checkList(e ast.Expr, s shape) bool {
	if s.class() != list {
		return f.refuse(e, "yields a list, %s wants %s", f.wanter, s.wants())
	}
	return !slices.ContainsFunc(e.AsList().Elements(), func(element ast.Expr) bool { return !f.check(element, s.items()) })
}

// mapped returns the expression for an element of the macros map and filter, nil for other comprehensions.
func mapped(c ast.ComprehensionExpr) ast.Expr {
	step := c.LoopStep()
	if step.Kind() == ast.CallKind && step.AsCall().FunctionName() == operators.Conditional {
		step = step.AsCall().Args()[1]
	}
	if c.AccuInit().Kind() != ast.ListKind || step.Kind() != ast.CallKind || step.AsCall().FunctionName() != operators.Add {
		return nil
	}
	if added := step.AsCall().Args()[1]; added.Kind() == ast.ListKind && added.AsList().Size() == 1 {
		return added.AsList().Elements()[0]
	}
	return nil
}

// fits reports whether values of a type fit, as far as types say. If not, why may say more than the names of the types.
func (r *registry) fits(t *cel.Type, s shape, depth int) (why string, ok bool) {
	r.compared++
	switch {
	case s.class() == anything || depth > maxCompareDepth || r.compared > maxCompared:
		return "", true
	case isOptional(t):
		return r.fits(t.Parameters()[0], s, depth+1)
	}
	switch t.Kind() {
	case types.DynKind, types.AnyKind, types.TypeParamKind, types.NullTypeKind:
		return "", true
	case types.ListKind:
		if s.class() != list {
			return "", false
		}
		return r.fits(t.Parameters()[0], s.items(), depth+1)
	case types.MapKind:
		return r.mapFits(t, s, depth)
	case types.StructKind:
		if from, known := r.objects[t.TypeName()]; known {
			return r.objectFits(from, s, depth)
		}
	default:
	}
	switch s.class() {
	case union:
		return "", slices.ContainsFunc(s.unionTypes(), func(name string) bool { return scalarFits(t, name, "") })
	case text, integer, number, boolean:
		return "", scalarFits(t, s.schema.Type[0], s.schema.Format)
	default:
		return "", false
	}
}

// scalarFits reports whether a value of a type is one of a scalar type of JSON.
func scalarFits(t *cel.Type, name, format string) bool {
	switch name {
	case typeString:
		return t.Kind() == types.StringKind || t.TypeName() == apiservercel.QuantityType.TypeName() ||
			t.Kind() == types.TimestampKind && format == "date-time" || t.Kind() == types.BytesKind && format == "byte"
	case typeInteger:
		return t.Kind() == types.IntKind || t.Kind() == types.UintKind
	case "number":
		return t.Kind() == types.IntKind || t.Kind() == types.UintKind || t.Kind() == types.DoubleKind
	case "boolean":
		return t.Kind() == types.BoolKind
	}
	return true
}

func (r *registry) mapFits(t *cel.Type, s shape, depth int) (why string, ok bool) {
	key, value := t.Parameters()[0], t.Parameters()[1]
	switch {
	case key.Kind() != types.StringKind && key.Kind() != types.DynKind && key.Kind() != types.TypeParamKind:
		return ", and keys are strings", false
	case s.class() == mapping:
		return r.fits(value, s.values(), depth+1)
	}
	return "", s.class() == object // Which keys there are is not known.
}

func (r *registry) objectFits(from *objectType, s shape, depth int) (why string, ok bool) {
	if s.class() != object && s.class() != mapping {
		return "", false
	}
	if from.fields == nil && from.shape.schema == s.schema {
		return "", true
	}
	names := from.names()
	for _, name := range names {
		target, open := s.field(name)
		if !open {
			return fmt.Sprintf(", which has no field %s", name), false
		}
		source := from.fields[name]
		if source == nil {
			source = r.celType(from.shape.property(name))
		}
		if _, ok := r.fits(source, target, depth+1); !ok {
			return fmt.Sprintf(", whose field %s is %s", name, target.wants()), false
		}
	}
	if s.class() != object {
		return "", true
	}
	for _, name := range s.required() {
		if !slices.Contains(names, name) {
			return fmt.Sprintf(", which needs the field %s", name), false
		}
	}
	return "", true
}

// typeName is the name of a type in messages: as schemas call it.
func typeName(t *cel.Type) string {
	if isOptional(t) {
		return "optional " + typeName(t.Parameters()[0])
	}
	switch t.Kind() {
	case types.IntKind, types.UintKind:
		return typeInteger
	case types.DoubleKind:
		return "number"
	case types.BoolKind:
		return "boolean"
	case types.NullTypeKind:
		return "null"
	case types.DynKind, types.AnyKind, types.TypeParamKind:
		return "any value"
	case types.ListKind:
		return "list of " + typeName(t.Parameters()[0])
	case types.MapKind:
		return "map of " + typeName(t.Parameters()[1])
	default:
		return strings.TrimPrefix(t.TypeName(), objectPrefix)
	}
}

// isOptional reports whether a type is that of optional values.
func isOptional(t *cel.Type) bool {
	return t.Kind() == types.OpaqueKind && t.TypeName() == "optional_type"
}
