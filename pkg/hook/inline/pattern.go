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
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// patterns are the literal patterns of an expression, which are compiled once, with the number of their states.
type patterns map[string]uint64

// findPatterns checks the literal patterns of an expression. CEL's own check compiles them, of any size.
func (c *compiler) findPatterns(path *field.Path, e *expression) bool {
	sound := true
	ast.PostOrderVisit(e.ast.Expr(), ast.NewExprVisitor(func(node ast.Expr) {
		if node.Kind() != ast.CallKind || !sound {
			return
		}
		pattern := literalPattern(node.AsCall())
		if pattern == "" {
			return
		}
		where := e.start(node.AsCall().Args()[0])
		if repeated := strings.Count(pattern, "{"); repeated > maxRepetitions {
			c.failf(path, e.source, "has a pattern with %d repetitions, and %d is the most%s", repeated, maxRepetitions, where)
			sound = false
			return
		}
		states, err := statesOf(pattern)
		if c.states += states; err != nil {
			c.failf(path, e.source, "has a pattern that is wrong: %v%s", err, where)
			sound = false
		} else if c.states > maxStates {
			c.failf(path, e.source, "makes the patterns of this hook larger than %d states together%s", maxStates, where)
			sound = false
		}
		e.patterns[pattern] = uint64(max(1, states))
	}))
	return sound
}

// literalPattern returns the pattern of a search, empty if it is no literal.
func literalPattern(call ast.CallExpr) string {
	switch call.FunctionName() {
	case "matches", "find", "findAll":
		if args := call.Args(); call.IsMemberFunction() && args[0].Kind() == ast.LiteralKind {
			pattern, _ := args[0].AsLiteral().(types.String)
			return string(pattern)
		}
	}
	return ""
}

func statesOf(pattern string) (int, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}
	states := len(program.Inst)
	for i := range program.Inst {
		states += len(program.Inst[i].Rune) / classRunes
	}
	return states, nil
}

// classRunes is how many limits of the ranges of a class take as much memory as a state without one.
const classRunes = 8
