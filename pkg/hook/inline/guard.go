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
	"math/bits"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// CEL adds up the cost of a function once it has returned. That is too late for a function whose result, or whose work, is a product of
// its arguments: two texts of a megabyte make a terabyte by one replace. So a checked expression calls such a function by a guard,
// which knows the cost beforehand, and refuses the call.

const guardPrefix = "@guarded "

// guards return what a call costs, from its arguments. A list that it returns costs its elements, too. The name of a function in it is that of the checked expression.
var guards = map[string]func(args []ref.Val) uint64{
	operators.Add:       costOfAdd,
	operators.Equals:    costOfWhole,
	operators.NotEquals: costOfWhole,
	operators.In:        costOfMembership,
	"merge":             func(args []ref.Val) uint64 { return 5 * (length(args[0]) + length(args[1])) }, // It makes a map.
	"includes":          costOfWhole,
	"replace":           costOfReplace,
	"join":              costOfJoin,
	"format":            func(args []ref.Val) uint64 { return 100 + costOfWhole(args) },
	"matches":           costOfMatch,
	"find":              costOfMatch,
	"findAll":           costOfFindAll,
	"split":             costOfSplit,
	"quantity":          costOfQuantity,
	"isQuantity":        costOfQuantity,
	"url":               costOfShort(maxURL),
	"isURL":             costOfShort(maxURL),
	"semver":            costOfShort(maxVersion),
	"isSemver":          costOfShort(maxVersion),
	"distinct":          func(args []ref.Val) uint64 { return product(weight(args[0]), length(args[0])) },
	"flatten":           costOfWhole,
	"indexOf":           costOfSearch,
	"lastIndexOf":       costOfSearch,
	"min":               costOfWhole,
	"max":               costOfWhole,
	"sum":               costOfWhole,
	"isSorted":          costOfWhole,
	"sort":              costOfSort,
	sortFunction:        costOfSort,
	"sets.contains":     costOfPairs,
	"sets.intersects":   costOfPairs,
	"sets.equivalent":   costOfPairs,
}

// orderFunction walks a map in the order of its keys: CEL has none of its own, and Go's is random. searchedFunction refuses a text that is too
// long for a pattern, and keyFunction one that is too long for a key. optionalFunction refuses what is no optional: CEL's own error has the whole value.
const orderFunction, searchedFunction, keyFunction, optionalFunction = "@ordered", "@searched", "@key", "@optional"

// sortFunction is what the macro sortBy calls, and resultVariable has what a loop has made so far. No expression can name either.
const sortFunction, resultVariable = "@sortByAssociatedKeys", "@result"

// guardFunctions declares the guards of an environment's functions.
func guardFunctions(env *cel.Env) ([]cel.EnvOption, error) {
	options := []cel.EnvOption{
		internalFunction(orderFunction, func(args ...ref.Val) ref.Val { return ordered(args[0]) }),
		internalFunction(searchedFunction, bounding("is longer than the %d bytes in which the pattern is searched")),
		internalFunction(keyFunction, bounding("is longer than the %d bytes that keys may have")),
		internalFunction(zoneFunction, portable),
		internalFunction(optionalFunction, func(args ...ref.Val) ref.Val {
			if _, ok := args[0].(*types.Optional); ok || types.IsUnknownOrError(args[0]) {
				return args[0]
			}
			return types.NewErr("yields %s after a ?, which takes an optional, such as one of .?field or [?key]", args[0].Type().TypeName())
		}),
	}
	for name, cost := range guards {
		original, err := implementation(env, name)
		if err != nil {
			return nil, err
		}
		if name == operators.Add {
			original = joining(original)
		}
		options = append(options, internalFunction(guardPrefix+name, func(args ...ref.Val) ref.Val {
			if needed := cost(args); needed > maxExpressionCost {
				return types.NewErr("%s would make or compare too much at once: its cost is above %d", spoken(name), maxExpressionCost)
			}
			return original(args...)
		}))
	}
	return options, nil
}

// bounding returns its first argument, and an error for a text of more bytes than the second.
func bounding(message string) functions.FunctionOp {
	return func(args ...ref.Val) ref.Val {
		if most, ok := args[1].(types.Uint); ok && textLength(args[0]) > uint64(most) {
			return types.NewErr(message, most)
		}
		return args[0]
	}
}

// internalFunction declares a function that no expression can name.
func internalFunction(name string, function functions.FunctionOp) cel.EnvOption {
	return cel.Function(name, cel.Overload(name+" of any", []*cel.Type{cel.DynType}, cel.DynType), cel.SingletonFunctionBinding(function))
}

// implementation returns what a function does, for all of its overloads.
func implementation(env *cel.Env, name string) (functions.FunctionOp, error) {
	switch name {
	case operators.Equals:
		return func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }, nil
	case operators.NotEquals:
		return func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }, nil
	}
	function, ok := env.Functions()[name]
	if !ok {
		return nil, fmt.Errorf("there is no function %s", name)
	}
	bindings, err := function.Bindings()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(bindings, func(o *functions.Overload) bool { return o.Operator == name })
	if i < 0 {
		return nil, fmt.Errorf("the function %s has no implementation", name)
	}
	o := bindings[i]
	return func(args ...ref.Val) ref.Val {
		switch {
		case len(args) == 1 && o.Unary != nil:
			return o.Unary(args[0])
		case len(args) == 2 && o.Binary != nil:
			return o.Binary(args[0], args[1])
		case o.Function != nil:
			return o.Function(args...)
		}
		return types.NewErr("no such overload: %s", spoken(name))
	}, nil
}

// spoken is the name of a function as an author writes it.
func spoken(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.Trim(name, "_"), "@"), "AssociatedKeys")
}

// trueVariable is true, and truthVariable has each boolean at its own key.
const trueVariable, truthVariable = "@true", "@truth"

// guarding changes a checked expression.
type guarding struct {
	ast.ExprFactory

	checked *ast.AST
	// last is the highest number of a node.
	last     int64
	patterns patterns
}

// guard has a checked expression call the guards, and walk maps in order.
func guard(checked *ast.AST, patterns patterns) {
	g := &guarding{ExprFactory: ast.NewExprFactory(), checked: checked, last: ast.MaxID(checked), patterns: patterns}
	ast.PostOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			g.call(e)
		case ast.ComprehensionKind:
			g.loop(e.AsComprehension())
		case ast.ListKind:
			for _, i := range e.AsList().OptionalIndices() {
				g.optional(e.AsList().Elements()[i])
			}
		case ast.MapKind:
			for _, entry := range e.AsMap().Entries() {
				if entry := entry.AsMapEntry(); entry.IsOptional() {
					g.optional(entry.Value())
				}
			}
		default:
		}
	}))
}

// loop has a loop walk a map in order, and read its condition from a variable. To count costs, CEL keeps values of all rounds until the loop
// ends, and operators search them, so that the time of a loop would grow with the square of its rounds. When a variable is read once more, CEL
// drops its former value with all that came after it.
func (g *guarding) loop(loop ast.ComprehensionExpr) {
	over, condition := loop.IterRange(), loop.LoopCondition()
	if kind := g.checked.GetType(over.ID()).Kind(); kind == types.MapKind || kind == types.DynKind || kind == types.StructKind {
		over.SetKindCase(g.NewCall(over.ID(), orderFunction, g.moved(over)))
	}
	if condition.Kind() == ast.LiteralKind {
		condition.SetKindCase(g.variable(condition.ID(), trueVariable))
		return
	}
	condition.SetKindCase(g.NewCall(condition.ID(), operators.Index, g.variable(g.next(), truthVariable), g.moved(condition)))
}

func (g *guarding) variable(id int64, name string) ast.Expr {
	g.checked.SetReference(id, ast.NewIdentReference(name, nil))
	return g.NewIdent(id, name)
}

// optional has a value checked of which it is not known whether it is an optional.
func (g *guarding) optional(value ast.Expr) {
	if !isOptional(g.checked.GetType(value.ID())) {
		value.SetKindCase(g.NewCall(value.ID(), optionalFunction, g.moved(value)))
	}
}

// wrap passes a text through a function that refuses one that is too long.
func (g *guarding) wrap(text ast.Expr, function string, most uint64) {
	text.SetKindCase(g.NewCall(text.ID(), function, g.moved(text), g.NewLiteral(g.next(), types.Uint(most))))
}

func (g *guarding) next() int64 {
	g.last++
	return g.last
}

func (g *guarding) moved(e ast.Expr) ast.Expr { return moved(g.ExprFactory, g.checked, e, g.next()) }

// moved returns a copy of a node with a number of its own, which is where the node was and refers to what the node referred to.
func moved(factory ast.ExprFactory, checked *ast.AST, e ast.Expr, id int64) ast.Expr {
	moved := factory.NewUnspecifiedExpr(id)
	moved.SetKindCase(e)
	checked.SetType(id, checked.GetType(e.ID()))
	if at, ok := checked.SourceInfo().GetOffsetRange(e.ID()); ok {
		checked.SourceInfo().SetOffsetRange(id, at)
	}
	if reference, ok := checked.ReferenceMap()[e.ID()]; ok {
		checked.SetReference(id, reference)
		delete(checked.ReferenceMap(), e.ID())
	}
	return moved
}

func (g *guarding) call(e ast.Expr) {
	call := e.AsCall()
	name := call.FunctionName()
	if key := call.Args(); (name == operators.Index || name == operators.OptIndex) && key[1].Kind() != ast.LiteralKind {
		g.wrap(key[1], keyFunction, maxName)
		return
	}
	if zone := zoneOf(call); zone != nil && zone.Kind() != ast.LiteralKind {
		zone.SetKindCase(g.NewCall(zone.ID(), zoneFunction, g.moved(zone)))
		return
	}
	if _, ok := guards[name]; !ok || harmless(g.checked, call) {
		return
	}
	if states := g.patterns[literalPattern(call)]; states > 0 && name != "findAll" {
		g.wrap(call.Target(), searchedFunction, min(maxElements, 40*maxExpressionCost/states))
		return
	}
	delete(g.checked.ReferenceMap(), e.ID())
	args := call.Args()
	if call.IsMemberFunction() {
		args = append([]ast.Expr{call.Target()}, args...)
	}
	e.SetKindCase(g.NewCall(e.ID(), guardPrefix+name, args...))
}

// harmless reports whether a call needs no guard: one of scalars, and one that adds an element to the result of a macro.
func harmless(checked *ast.AST, call ast.CallExpr) bool {
	args, name := call.Args(), call.FunctionName()
	if call.IsMemberFunction() || len(args) != 2 {
		return false
	}
	if args[0].Kind() == ast.IdentKind && args[0].AsIdent() == resultVariable {
		return true
	}
	scalar := func(e ast.Expr) bool {
		switch checked.GetType(e.ID()).Kind() {
		case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.DurationKind, types.TimestampKind, types.NullTypeKind:
			return true
		case types.StringKind, types.BytesKind:
			return name == operators.Equals || name == operators.NotEquals
		default:
			return false
		}
	}
	if name == operators.Equals || name == operators.NotEquals {
		return scalar(args[0]) || scalar(args[1])
	}
	return scalar(args[0]) && scalar(args[1])
}

// costs is Kubernetes' estimator of actual costs, with those of the guards.
type costs struct {
	library.CostEstimator

	patterns patterns
}

// CallCost implements [interpreter.ActualCostEstimator].
func (c costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if name, ok := strings.CutPrefix(function, guardPrefix); ok {
		cost := guards[name](args)
		if _, ok := result.(traits.Lister); ok {
			cost += length(result)
		}
		return &cost
	}
	switch function {
	case orderFunction:
		return new(costOfOrder(args[0]))
	case "getQuery":
		if u, ok := args[0].(apiservercel.URL); ok {
			return new(1 + uint64(len(u.RawQuery)))
		}
	case "matches", "find":
		if pattern, ok := args[1].(types.String); ok {
			return new(costOfStates(args[0], c.patterns[string(pattern)]))
		}
	}
	if cost := c.CostEstimator.CallCost(function, overload, args, result); cost != nil {
		return cost
	}
	if len(args) == 2 && args[0].Type() == types.TimestampType && args[1].Type() == types.StringType {
		return new(uint64(500)) // Time zones are read from files.
	}
	return new(1 + textLength(args...)/10) // What reads a text reads all of it.
}

// textLength is the bytes of the texts among some values.
func textLength(values ...ref.Val) uint64 {
	var total uint64
	for _, v := range values {
		switch v := v.(type) {
		case types.String:
			total += uint64(len(v))
		case types.Bytes:
			total += uint64(len(v))
		}
	}
	return total
}

// product is so large when it overflows that no part of it is allowed.
func product(a, b uint64) uint64 {
	const most = 1 << 50
	if a != 0 && b > most/a {
		return most
	}
	return a * b
}

// length is the number of characters or elements, and 1 for a scalar.
func length(v ref.Val) uint64 {
	if sizer, ok := v.(traits.Sizer); ok {
		if size, ok := sizer.Size().(types.Int); ok && size > 0 {
			return uint64(size)
		}
	}
	return 1
}

func costOfAdd(args []ref.Val) uint64 {
	if _, ok := args[0].(traits.Lister); !ok {
		return costOfText(textLength(args...))
	}
	if length(args[0])+length(args[1]) > maxElements {
		return 2 * maxExpressionCost
	}
	return 1
}

// joining returns an addition that makes a list of the elements of two. CEL's own is a view of both, and in a view of a view and so on, each element
// is searched in all of them.
func joining(add functions.FunctionOp) functions.FunctionOp {
	return func(args ...ref.Val) ref.Val {
		a, ok1 := args[0].(traits.Lister)
		b, ok2 := args[1].(traits.Lister)
		if !ok1 || !ok2 {
			return add(args...)
		}
		elements := make([]ref.Val, 0, length(a)+length(b))
		for _, l := range []traits.Lister{a, b} {
			for it := l.Iterator(); it.HasNext() == types.True; {
				element := it.Next()
				if types.IsError(element) { // Objects that cannot be decoded are a list of their error.
					return element
				}
				elements = append(elements, element)
			}
		}
		return types.NewRefValList(types.DefaultTypeAdapter, elements)
	}
}

// costOfOrder is that of sorting the keys of a map.
func costOfOrder(v ref.Val) uint64 {
	if _, isList := v.(traits.Lister); isList {
		return 1
	}
	entries, comparisons := length(v), uint64(0)
	for rest := entries; rest > 0; rest /= 2 {
		comparisons += entries
	}
	return 1 + comparisons/3
}

// costOfText is that of making a text of so many bytes.
func costOfText(bytes uint64) uint64 {
	if bytes > maxText {
		return 2 * maxExpressionCost
	}
	return 1 + bytes/5
}

// costOfJoin counts the separators.
func costOfJoin(args []ref.Val) uint64 {
	whole := costOfWhole(args)
	if len(args) < 2 || whole > maxExpressionCost {
		return whole
	}
	return whole + costOfText(product(length(args[0]), textLength(args[1])))
}

// costOfWhole is that of a function that looks at all values within its arguments.
func costOfWhole(args []ref.Val) uint64 {
	var sum uint64
	for _, arg := range args {
		sum += weight(arg)
	}
	return sum
}

// costOfMembership counts a search for a key, and a comparison with each element of a list. Objects are a list, and a map by their keys.
func costOfMembership(args []ref.Val) uint64 {
	_, isList := args[1].(traits.Lister)
	if _, isText := args[0].(types.String); isText || !isList {
		if _, isMap := args[1].(traits.Mapper); isMap {
			return 1 + textLength(args[0])/10
		}
	}
	return weight(args[1])
}

// costOfSearch counts each place of a text with each character of what is searched.
func costOfSearch(args []ref.Val) uint64 {
	if _, ok := args[0].(types.String); ok {
		return product(1+length(args[0])/10, 1+length(args[1])/10)
	}
	return costOfWhole(args)
}

// costOfSort counts each comparison with what it reads of the values by which is sorted, the last argument.
func costOfSort(args []ref.Val) uint64 {
	keys := args[len(args)-1]
	return product(weight(keys), uint64(bits.Len64(length(keys)))) //nolint:gosec // It is 64 at most.
}

func costOfPairs(args []ref.Val) uint64 { return product(weight(args[0]), weight(args[1])) }

// costOfMatch includes that the pattern is compiled: a repetition may have a thousand states.
func costOfMatch(args []ref.Val) uint64 {
	states := length(args[1])
	if pattern, ok := args[1].(types.String); ok {
		states += 1000 * uint64(max(0, strings.Count(string(pattern), "{")))
	}
	return 100 + 10*states + costOfStates(args[0], states)
}

func costOfStates(text ref.Val, states uint64) uint64 { return product(1+length(text)/10, 1+states/4) }

// costOfFindAll refuses to make a list that is too long: each character may be found.
func costOfFindAll(args []ref.Val) uint64 {
	if length(args[0]) > maxElements {
		return 2 * maxExpressionCost
	}
	return costOfMatch(args)
}

// costOfSplit counts the pieces of the text.
func costOfSplit(args []ref.Val) uint64 {
	text, ok1 := args[0].(types.String)
	separator, ok2 := args[1].(types.String)
	switch {
	case !ok1 || !ok2:
		return 1
	case strings.Count(string(text), string(separator)) >= maxElements:
		return 2 * maxExpressionCost
	}
	return 1 + uint64(len(text))/5
}

// longQuantity has more digits than any quantity, or an exponent of so many that calculating with the number takes long, or would never end.
var longQuantity = regexp.MustCompile(`.{100}|[eE][+-]?\d{3}`)

func costOfQuantity(args []ref.Val) uint64 {
	if text, ok := args[0].(types.String); ok && longQuantity.MatchString(string(text)) {
		return 2 * maxExpressionCost
	}
	return 1
}

// costOfShort refuses a text that is longer than what it should be: all that is done with the value reads the whole of it.
func costOfShort(most uint64) func(args []ref.Val) uint64 {
	return func(args []ref.Val) uint64 {
		if textLength(args[0]) > most {
			return 2 * maxExpressionCost
		}
		return 1 + textLength(args[0])/10
	}
}

// costOfReplace counts the text that results.
func costOfReplace(args []ref.Val) uint64 {
	from, ok1 := args[0].(types.String)
	what, ok2 := args[1].(types.String)
	with, ok3 := args[2].(types.String)
	if !ok1 || !ok2 || !ok3 {
		return 1
	}
	found := uint64(max(0, strings.Count(string(from), string(what))))
	return costOfText(uint64(len(from)) + product(found, uint64(len(with))))
}

// weight is the cost of walking a value with all that is in it, which may be far more than there is in memory: a list may hold the same
// list many times. It stops at what nothing may cost.
func weight(v ref.Val) uint64 {
	w := weighing{}
	w.add(v, 0)
	return w.total
}

type weighing struct{ total uint64 }

const weightLimit = maxExpressionCost + 1

func (w *weighing) add(v ref.Val, depth int) {
	if w.total > weightLimit {
		return
	}
	if depth > 4*maxNesting {
		w.total = weightLimit + 1
		return
	}
	w.total++
	switch v := v.(type) {
	case types.String, types.Bytes:
		w.total += textLength(v) / 10
	case *types.Optional:
		if v.HasValue() {
			w.add(v.GetValue(), depth+1)
		}
	case traits.Lister:
		size, _ := v.Size().(types.Int)
		for i := types.IntZero; i < size && w.total <= weightLimit; i++ {
			w.add(v.Get(i), depth+1)
		}
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && w.total <= weightLimit; {
			key := it.Next()
			w.add(key, depth+1)
			w.add(v.Get(key), depth+1)
		}
	}
}

// ordered returns a map that is walked in the order of its keys; all other values are returned as they are.
func ordered(v ref.Val) ref.Val {
	if _, ok := v.(traits.Lister); ok {
		return v
	}
	m, ok := v.(traits.Mapper)
	if !ok {
		return v
	}
	keys := sortedKeys(m)
	return orderedMap{Mapper: m, keys: keys}
}

// sortedKeys returns the keys of a map in order: those of different types by their types.
func sortedKeys(m traits.Mapper) []ref.Val {
	keys := make([]ref.Val, 0, length(m))
	for it := m.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, func(a, b ref.Val) int {
		if s, ok := a.(types.String); ok {
			if t, ok := b.(types.String); ok {
				return strings.Compare(string(s), string(t))
			}
		}
		if comparer, ok := a.(traits.Comparer); ok {
			if order, ok := comparer.Compare(b).(types.Int); ok {
				return int(order)
			}
		}
		return strings.Compare(a.Type().TypeName(), b.Type().TypeName())
	})
	return keys
}

type orderedMap struct {
	traits.Mapper
	keys []ref.Val
}

func (m orderedMap) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, m.keys).Iterator()
}

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
