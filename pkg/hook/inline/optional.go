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
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types/ref"
)

// valueFunction returns its argument. CEL looks into the optional that an expression yields, and not into one that a map or a list holds:
// of a variable that is an optional, variables.secret.?data would never have a value.
const valueFunction = "@value"

func declareValueFunction() cel.EnvOption {
	return internalFunction(valueFunction, func(args ...ref.Val) ref.Val { return args[0] })
}

// lookIntoOptionals has a checked expression look into optionals that are values of maps and lists.
func lookIntoOptionals(checked *ast.AST) {
	factory, last := ast.NewExprFactory(), ast.MaxID(checked)
	ast.PostOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		from, _ := lookedInto(e)
		if from == nil || !holdsOptional(checked, from) {
			return
		}
		last++
		from.SetKindCase(factory.NewCall(from.ID(), valueFunction, moved(factory, checked, from, last)))
	}))
}

// lookedInto returns the value of which an expression takes a field or an element, nil if it takes none, and the name of the field, if it is literal.
func lookedInto(e ast.Expr) (from ast.Expr, field string) {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName()
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			if of := call.Args()[1]; of.Kind() == ast.LiteralKind {
				field, _ = of.AsLiteral().Value().(string)
			}
			return call.Args()[0], field
		}
	default:
	}
	return nil, ""
}

// holdsOptional reports whether an expression takes an optional out of a value that is none.
func holdsOptional(checked *ast.AST, e ast.Expr) bool {
	from, _ := lookedInto(e)
	return from != nil && isOptional(checked.GetType(e.ID())) && !isOptional(checked.GetType(from.ID())) &&
		(e.Kind() == ast.SelectKind || e.AsCall().FunctionName() == operators.Index)
}
