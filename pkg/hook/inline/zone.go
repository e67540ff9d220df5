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

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// zoneFunction refuses a text that names a zone of the host.
const zoneFunction = "@zone"

// zonedFunctions are those of a time whose argument is a zone.
var zonedFunctions = []string{
	overloads.TimeGetFullYear, overloads.TimeGetMonth, overloads.TimeGetDayOfYear, overloads.TimeGetDayOfMonth, overloads.TimeGetDate,
	overloads.TimeGetDayOfWeek, overloads.TimeGetHours, overloads.TimeGetMinutes, overloads.TimeGetSeconds, overloads.TimeGetMilliseconds,
}

// zoneOf returns the zone in which a call reads a time, nil if it names none.
func zoneOf(call ast.CallExpr) ast.Expr {
	if args := call.Args(); call.IsMemberFunction() && len(args) == 1 && slices.Contains(zonedFunctions, call.FunctionName()) {
		return args[0]
	}
	return nil
}

// checkZone returns an error for a zone that is another one on each host. Names of the IANA database begin with a capital letter. What else hosts
// have is links to their own zone, and copies of the database by other rules.
func checkZone(name string) error {
	if name == "Local" || name != "" && name[0] >= 'a' && name[0] <= 'z' {
		return fmt.Errorf("%s is not the same zone everywhere: name one of the IANA database, as Europe/Berlin, or an offset, as +01:00", name)
	}
	return nil
}

// checkZones checks the literal zones of an expression.
func (c *compiler) checkZones(path *field.Path, e *expression) bool {
	sound := true
	ast.PostOrderVisit(e.ast.Expr(), ast.NewExprVisitor(func(node ast.Expr) {
		if node.Kind() != ast.CallKind {
			return
		}
		zone := zoneOf(node.AsCall())
		if zone == nil || zone.Kind() != ast.LiteralKind {
			return
		}
		name, _ := zone.AsLiteral().(types.String)
		if err := checkZone(string(name)); err != nil {
			c.failf(path, e.source, "%v%s", err, e.start(zone))
			sound = false
		}
	}))
	return sound
}

// portable returns a zone, and an error for one that is not the same everywhere.
func portable(args ...ref.Val) ref.Val {
	if name, ok := args[0].(types.String); ok {
		if err := checkZone(string(name)); err != nil {
			return types.WrapErr(err)
		}
	}
	return args[0]
}
