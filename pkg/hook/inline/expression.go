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
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/library"
)

// expression is one that is compiled.
type expression struct {
	program cel.Program
	ast     *ast.AST
	out     *cel.Type
	path    string
	source  string
	// patterns are its literal ones.
	patterns patterns
	// cost is that of an expression whose cost does not depend on values, and is not tracked. Zero: it is.
	cost uint64
}

// compiler compiles one hook of a controller.
type compiler struct {
	registry *registry
	sizes    *sizes
	errs     field.ErrorList
	// expressions, nodes and sources are how many there are so far, and the bytes of the expressions. states are those of literal patterns.
	expressions, nodes, sources, states int
	// later are the names of variables that are not declared yet.
	later map[string]bool
	// parentName is the variable that has the parent, and readsStatus says that an expression may read its status.
	parentName  string
	readsStatus bool
}

// fail adds an error of a value.
func (c *compiler) failf(path *field.Path, value any, format string, args ...any) {
	const most = 200
	if text, ok := value.(string); ok && len(text) > most {
		value = strings.ToValidUTF8(text[:most], "") + "…"
	}
	c.errs = append(c.errs, field.Invalid(path, value, fmt.Sprintf(format, args...)))
}

// compile compiles an expression, and returns nil when it is wrong.
func (c *compiler) compile(env *cel.Env, path *field.Path, source string) *expression {
	if !c.admit(path, source) {
		return nil
	}
	c.registry.missed = missing{}
	compiled, issues := env.Compile(source)
	if issues.Err() != nil {
		c.reportIssues(path, source, issues)
		return nil
	}
	estimate, err := env.EstimateCost(compiled, &library.CostEstimator{SizeEstimator: c.sizes})
	if err != nil {
		c.failf(path, source, "its cost cannot be estimated: %v", err)
		return nil
	}
	if estimate.Max > maxEstimate {
		c.failf(path, source, "may cost %s with the largest values that the schemas allow, and %d is the most: "+
			"set maxItems, maxProperties and maxLength in the schemas, or nest fewer loops", amount(estimate.Max), maxEstimate)
		return nil
	}
	e := &expression{
		ast: compiled.NativeRep(), out: compiled.OutputType(), path: path.String(), source: source, patterns: patterns{},
	}
	if !c.findPatterns(path, e) || !c.checkZones(path, e) {
		return nil
	}
	c.readsStatus = c.readsStatus || mayReadStatus(e.ast.Expr(), c.parentName)
	return e
}

func amount(cost uint64) string {
	const unbounded = 1 << 62
	if cost > unbounded {
		return "more than can be counted"
	}
	return fmt.Sprintf("about %.0e", float64(cost))
}

// admit checks what an expression may look like before it is parsed.
func (c *compiler) admit(path *field.Path, source string) bool {
	c.expressions++
	const enough = 16 // doublings, to be beyond the limit
	doubling := strings.Count(source, "optMap") + strings.Count(source, "optFlatMap")
	c.sources += len(source) << min(doubling, enough)
	switch {
	case c.expressions > maxExpressions:
		if c.expressions == maxExpressions+1 {
			c.failf(path, source, "is expression %d of this hook, and %d is the most", c.expressions, maxExpressions)
		}
		return false
	case strings.TrimSpace(source) == "":
		c.errs = append(c.errs, field.Required(path, "an expression in CEL"))
		return false
	case len(source) > maxExpression:
		c.errs = append(c.errs, field.TooLong(path, "", maxExpression))
		return false
	case c.sources > maxSources:
		c.failf(path, source, "makes the expressions of this hook longer than %d bytes together, of which each optMap and optFlatMap doubles its expression",
			maxSources)
		return false
	}
	return true
}

// reportIssues turns the errors of CEL into errors of a field.
func (c *compiler) reportIssues(path *field.Path, source string, issues *cel.Issues) {
	const most = 3
	for i, issue := range issues.Errors() {
		if i == most {
			return
		}
		message := c.explain(issue.Message, source)
		hint := habitOf(message, source)
		c.failf(path, source, "%s%s%s", message, hint, position(max(issue.Location.Line(), 1), max(issue.Location.Column()+1, 1)))
		if hint != "" {
			return // What follows is of the same mistake.
		}
	}
}

// hints say what to do where a function takes no values of these types.
var hints = map[string]string{
	operators.Conditional: "both sides need one type, unless dyn(…) hides that of one",
	operators.Add:         "string(…) makes text, and merge joins maps",
	operators.Equals:      "both sides need one type, and has(…) says whether a field is set",
	operators.NotEquals:   "both sides need one type, and has(…) says whether a field is set",
	operators.Index:       "fields of objects are read as .field, and elements of lists by number",
	operators.In:          "an object is found by its name with [?'name'].hasValue()",
	"merge":               "it takes maps, and dyn(…) makes one of an object",
	"base64.encode":       "bytes(…) makes bytes of text",
}

// habits are what authors bring from other languages: a message of CEL with a part of the expression, and what to write instead.
var habits = []struct{ message, source, hint string }{
	{"expected type 'bool' but found '", "||", "a default is written .?field.orValue(…)"},
	{"extraneous input '?'", "??", "a default is written .?field.orValue(…)"},
	{"expected type 'bool' but found '", "", "has(…) says whether a field is set"},
	{"found no matching overload for '!_'", "", "has(…) says whether a field is set"},
	{"type 'list(", ".", "elements of a list are found with [0], filter, exists or map"},
}

// habitOf returns what to write instead of what an author brings from another language, as the end of a sentence; empty if it is nothing of that.
func habitOf(message, source string) string {
	for _, habit := range habits {
		if strings.HasPrefix(message, habit.message) && strings.Contains(source, habit.source) {
			return "; " + habit.hint
		}
	}
	return ""
}

// explain turns a message of CEL into one for an author.
func (c *compiler) explain(message, source string) string {
	message, _, _ = strings.Cut(strings.TrimPrefix(message, "Syntax error: "), "\n")
	if strings.HasPrefix(message, "mismatched input '<EOF>'") {
		return "the expression ends too early"
	}
	message, _, _ = strings.Cut(strings.ReplaceAll(message, objectPrefix, ""), " expecting {")
	for function, hint := range hints {
		if strings.HasPrefix(message, "found no matching overload for '"+function+"'") {
			return message + "; " + hint
		}
	}
	if name, ok := strings.CutPrefix(message, "undefined field '"); ok {
		return c.undefined(strings.TrimSuffix(name, "'"))
	}
	name, ok := strings.CutPrefix(message, "undeclared reference to '")
	if !ok {
		return message
	}
	name, _, _ = strings.Cut(name, "'")
	if strings.Contains(source, name+"(") {
		return "there is no function " + name
	}
	return name + " is not declared" + fits(name, c.sizes.names)
}

// undefined says that an object has no such field.
func (c *compiler) undefined(name string) string {
	missed := c.registry.missed
	if missed.field != name {
		return fmt.Sprintf("there is no field %s", name)
	}
	object := strings.TrimPrefix(missed.object, objectPrefix)
	if object == "variables" && c.later[name] {
		return fmt.Sprintf("variables.%s is declared later: a variable may use those before it", name)
	}
	return fmt.Sprintf("%s has no field %s%s", object, name, c.registry.suggest(missed))
}

// position is where in an expression something is, as the end of a sentence. Lines and columns begin with 1.
func position(line, column int) string { return fmt.Sprintf(" (line %d, column %d)", line, column) }

// start is the position of the first character of a node.
func (e *expression) start(node ast.Expr) string {
	first, id := e.ast.SourceInfo(), node.ID()
	ast.PostOrderVisit(node, ast.NewExprVisitor(func(part ast.Expr) {
		offset, ok := first.GetOffsetRange(part.ID())
		if best, known := first.GetOffsetRange(id); ok && (!known || offset.Start < best.Start) {
			id = part.ID()
		}
	}))
	return e.at(id)
}

// at is the position of a node, which for a field is that of its dot, and for an operator that of the operator.
func (e *expression) at(id int64) string {
	location := e.ast.SourceInfo().GetStartLocation(id)
	if location.Line() < 1 {
		return position(1, 1)
	}
	return position(location.Line(), location.Column()+1)
}

// plan makes the program of an expression. Nothing may be read of its tree after that, but positions.
func (c *compiler) plan(env *cel.Env, path *field.Path, e *expression) *expression {
	lookIntoOptionals(e.ast)
	options := programOptions(costs{patterns: e.patterns})
	if e.cost = selecting(e.ast.Expr()); e.cost > 0 {
		options = []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)} // Tracking would cost several times what it tracks.
	}
	guard(e.ast, e.patterns)
	program, err := env.PlanProgram(e.ast, options...)
	if err != nil {
		c.failf(path, e.source, "cannot be planned: %v", err)
		return nil
	}
	e.program = program
	return e
}

// selecting returns the cost of an expression that only selects fields, zero of others.
func selecting(e ast.Expr) uint64 {
	switch e.Kind() {
	case ast.IdentKind:
		return 1
	case ast.SelectKind:
		if cost := selecting(e.AsSelect().Operand()); cost > 0 {
			return cost + 1
		}
	default:
	}
	return 0
}

// expressionError is an error of the evaluation of an expression.
type expressionError struct {
	// path is that of the expression in the controller object.
	path string
	// err says what is wrong, and where in the expression.
	err error
}

func (e *expressionError) Error() string { return e.path + ": " + e.err.Error() }

// Unwrap returns what is wrong.
func (e *expressionError) Unwrap() error { return e.err }

// failed returns the error of an evaluation, which names the expression in which it arose.
func (e *expression) failed(err error) error {
	if inner, ok := errors.AsType[*expressionError](err); ok {
		return inner
	}
	where := ""
	if located, ok := errors.AsType[*types.Err](err); ok && located.NodeID() != 0 {
		where = e.at(located.NodeID())
	}
	message := strings.ReplaceAll(err.Error(), guardPrefix, "")
	if strings.Contains(message, "actual cost limit exceeded") {
		message = fmt.Sprintf("its cost is above %d: let it walk less", maxExpressionCost)
	}
	if strings.HasPrefix(message, "no such key: ") {
		message += "; read what may be missing with .? or [?…]"
	}
	return &expressionError{path: e.path, err: errors.New(message + where)}
}

// versioned are the fields of an object's metadata that any write of it changes.
var versioned = []string{"resourceVersion", "managedFields", "generation"}

// mayReadStatus reports whether the value of an expression may depend on the status of the parent, or on what a write of the status changes
// besides. It may wherever the expression uses the parent otherwise than for a field of another name. It is asked before the expression is planned.
func mayReadStatus(e ast.Expr, parent string) bool {
	uses, elsewhere := 0, 0
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(node ast.Expr) {
		if isParent(node, parent) {
			uses++
			return
		}
		of, name := lookedInto(node)
		switch {
		case of == nil || name == "":
		case isParent(of, parent) && name != "status" && name != metadataField:
			elsewhere++
		case !slices.Contains(versioned, name):
			if root, group := lookedInto(of); root != nil && group == metadataField && isParent(root, parent) {
				elsewhere++
			}
		}
	}))
	return uses != elsewhere
}

func isParent(e ast.Expr, parent string) bool {
	return e.Kind() == ast.IdentKind && (e.AsIdent() == parent || e.AsIdent() == "."+parent)
}
