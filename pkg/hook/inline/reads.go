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
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// versioned are the fields of an object's metadata that any write of it changes.
var versioned = []string{"resourceVersion", "managedFields", "generation"}

// mayReadStatus reports whether the value of an expression may depend on the status of the parent, or on what a write of the status changes
// besides. It may wherever the expression uses the parent otherwise than for a field of another name. It is asked before the expression is planned.
func mayReadStatus(e ast.Expr, parent string) bool {
	uses, harmless := 0, 0
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(node ast.Expr) {
		if isParent(node, parent) {
			uses++
			return
		}
		of, name := fieldOf(node)
		switch {
		case of == nil || name == "":
		case isParent(of, parent) && name != "status" && name != "metadata":
			harmless++
		case !slices.Contains(versioned, name):
			if root, group := fieldOf(of); root != nil && group == "metadata" && isParent(root, parent) {
				harmless++
			}
		}
	}))
	return uses != harmless
}

func isParent(e ast.Expr, parent string) bool {
	return e.Kind() == ast.IdentKind && (e.AsIdent() == parent || e.AsIdent() == "."+parent)
}

// fieldOf returns of what an expression reads a field, and the name of the field; nil if it does not, and no name if that is computed.
func fieldOf(e ast.Expr) (of ast.Expr, name string) {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName()
	case ast.CallKind:
		args := e.AsCall().Args()
		if !slices.Contains([]string{operators.OptSelect, operators.OptIndex, operators.Index}, e.AsCall().FunctionName()) {
			return nil, ""
		}
		if args[1].Kind() == ast.LiteralKind {
			name, _ = args[1].AsLiteral().Value().(string)
		}
		return args[0], name
	default:
		return nil, ""
	}
}
