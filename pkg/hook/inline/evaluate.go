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
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/api/resource"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// budget is what is left of the limits of one call.
type budget struct {
	cost  int64
	bytes int64
	// texts are the bytes of the texts of the response.
	texts int
	// ended returns why the call is to end before its limits do, nil if it is not.
	ended func() error
}

var errTooCostly = fmt.Errorf("the expressions of this hook together cost more than %d: let them walk less", maxSyncCost)

// decode decodes JSON as a whole, and counts its values before it makes them: they may have thirty times as many bytes as their JSON.
func (b *budget) decode(data []byte, into any) error {
	values := bytes.Count(data, []byte(",")) + bytes.Count(data, []byte("{")) + bytes.Count(data, []byte("["))
	if b.cost -= int64(values * decodingCost); b.cost < 0 {
		return errTooCostly
	}
	return utiljson.Unmarshal(data, into)
}

// scope is what expressions see: the variables of the call, and the elements of the iterators around them.
type scope struct {
	budget *budget
	outer  *scope
	// resolve finds a variable of the call, in the outermost scope.
	resolve func(name string) (any, bool)
	name    string
	value   ref.Val
}

var _ interpreter.Activation = (*scope)(nil)

// ResolveName implements [interpreter.Activation].
func (s *scope) ResolveName(name string) (any, bool) {
	switch {
	case s.outer == nil:
		return s.resolve(name)
	case s.name == name:
		return s.value, true
	}
	return s.outer.ResolveName(name)
}

// Parent implements [interpreter.Activation].
func (s *scope) Parent() interpreter.Activation { return nil }

// with returns the scope in which a variable has a value.
func (s *scope) with(name string, value ref.Val) *scope {
	return &scope{budget: s.budget, outer: s, name: name, value: value}
}

// run evaluates an expression.
func (e *expression) run(s *scope) (ref.Val, error) {
	if s.budget.cost < 0 {
		return nil, &expressionError{path: e.path, err: errTooCostly}
	}
	if err := s.budget.ended(); err != nil {
		return nil, e.failf("evaluating it: %w", err)
	}
	value, details, err := e.program.Eval(s)
	cost := details.ActualCost()
	switch {
	case e.cost > 0:
		cost = &e.cost
	case cost == nil: // It was cancelled.
		cost = new(uint64(maxExpressionCost))
	default:
		*cost += evaluationCost
	}
	s.budget.cost -= int64(min(*cost, maxSyncCost))
	switch {
	case err != nil:
		return nil, e.failed(err)
	case s.budget.cost < 0:
		return nil, &expressionError{path: e.path, err: errTooCostly}
	}
	return value, nil
}

func (e *expression) failf(format string, args ...any) error {
	return &expressionError{path: e.path, err: fmt.Errorf(format, args...)}
}

func (l literal) eval(s *scope) (any, bool, error) {
	return l.value, true, s.budget.spend(l.value)
}

func (n computed) eval(s *scope) (any, bool, error) {
	value, err := n.e.run(s)
	if err != nil {
		return nil, false, err
	}
	result, present, err := s.budget.toJSON(value, 0)
	if err != nil {
		return nil, false, &expressionError{path: n.e.path, err: err}
	}
	return result, present, nil
}

func (n joined) eval(s *scope) (any, bool, error) {
	var b strings.Builder
	for _, part := range n.parts {
		text := part.text
		if part.e != nil {
			value, err := part.e.run(s)
			if err != nil {
				return nil, false, err
			}
			var ok bool
			if text, ok = asText(value); !ok {
				return nil, false, part.e.failf("yields %s, and a text is made of strings, numbers and booleans", value.Type().TypeName())
			}
		}
		if b.Len()+len(text) > maxText {
			return nil, false, errLongText
		}
		b.WriteString(text)
	}
	return b.String(), true, s.budget.spend(b.String())
}

// asText returns a scalar as it stands in a text.
func asText(value ref.Val) (string, bool) {
	switch v := value.(type) {
	case types.String:
		return string(v), true
	case types.Int:
		return strconv.FormatInt(int64(v), 10), true
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10), true
	case types.Bool:
		return strconv.FormatBool(bool(v)), true
	case types.Double:
		return strconv.FormatFloat(float64(v), 'g', -1, 64), true
	}
	return "", false
}

func (n mapNode) eval(s *scope) (any, bool, error) {
	result := make(map[string]any, len(n.names))
	for i, name := range n.names {
		value, present, err := n.values[i].eval(s)
		if err != nil {
			return nil, false, err
		}
		if present {
			result[name] = value
			if err := s.budget.spend(name); err != nil {
				return nil, false, err
			}
		}
	}
	return result, true, s.budget.spend(nil)
}

func (n listNode) eval(s *scope) (any, bool, error) {
	result := make([]any, 0, len(n.elements))
	for _, element := range n.elements {
		value, present, err := element.eval(s)
		if err != nil {
			return nil, false, err
		}
		if present {
			result = append(result, value)
		}
	}
	return result, true, s.budget.spend(nil)
}

var errTooLarge = errors.New("the response is larger than " + strconv.Itoa(maxResponseBytes>>20) + " MiB, of which each value counts for " +
	strconv.Itoa(nodeBytes) + " bytes at least")

var errLongText = errors.New("a text would be longer than " + strconv.Itoa(maxText) + " bytes, which no object may be")

// spend counts a scalar of the response.
func (b *budget) spend(value any) error {
	b.bytes -= nodeBytes
	if text, ok := value.(string); ok {
		b.bytes -= int64(len(text))
		b.texts += len(text)
	}
	if b.bytes < 0 {
		return errTooLarge
	}
	return nil
}

// toJSON returns a value of CEL as encoding/json takes it, and false for an optional without a value.
func (b *budget) toJSON(value ref.Val, depth int) (any, bool, error) {
	if depth > 4*maxNesting {
		return nil, false, fmt.Errorf("yields a value that is nested deeper than %d", 4*maxNesting)
	}
	if optional, ok := value.(*types.Optional); ok {
		if !optional.HasValue() {
			return nil, false, b.spend(nil) // Its visit costs as much as that of others.
		}
		return b.toJSON(optional.GetValue(), depth+1)
	}
	switch v := value.(type) {
	case traits.Lister:
		result, err := b.listToJSON(v, depth)
		return result, true, err
	case traits.Mapper:
		result, err := b.mapToJSON(v, depth)
		return result, true, err
	}
	result, err := scalarToJSON(value)
	if err == nil {
		err = b.spend(result)
	}
	return result, true, err
}

func (b *budget) listToJSON(l traits.Lister, depth int) (any, error) {
	result := []any{}
	for it := l.Iterator(); it.HasNext() == types.True; {
		element, present, err := b.toJSON(it.Next(), depth+1)
		if err != nil {
			return nil, err
		}
		if present {
			result = append(result, element)
		}
	}
	return result, b.spend(nil)
}

func (b *budget) mapToJSON(m traits.Mapper, depth int) (any, error) {
	result := map[string]any{}
	for _, key := range sortedKeys(m) {
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("yields a map with a key of type %s, and keys are strings", key.Type().TypeName())
		}
		value, present, err := b.toJSON(m.Get(key), depth+1)
		if err != nil {
			return nil, err
		}
		if present {
			result[string(name)] = value
			if err := b.spend(string(name)); err != nil {
				return nil, err
			}
		}
	}
	return result, b.spend(nil)
}

func scalarToJSON(value ref.Val) (any, error) {
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		return uint64(v), nil
	case types.Double:
		if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
		return nil, errors.New("yields a number that JSON does not have")
	case types.String:
		return string(v), nil
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(v), nil
	case types.Timestamp:
		return v.Time.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		return v.Duration.String(), nil
	case *types.Err:
		return nil, v
	}
	if quantity, ok := value.Value().(*resource.Quantity); ok {
		return quantity.String(), nil
	}
	return nil, fmt.Errorf("yields %s, which JSON does not have: use string(…) or a field of it", value.Type().TypeName())
}

// encode returns what json.Marshal does, without its reflection. The budget does not know of escapes, which make six bytes of one.
// The texts are a part of the body whose size is known: to let a large body grow makes garbage of several times its size.
func encode(value any, texts int) ([]byte, error) {
	return appendJSON(make([]byte, 0, 1024+texts), value)
}

func appendJSON(b []byte, value any) ([]byte, error) {
	var err error
	switch v := value.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case string:
		return appendText(b, v)
	case []any:
		b = append(b, '[')
		for i, element := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, element); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case map[string]any:
		var room [16]string
		names := room[:0]
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		b = append(b, '{')
		for i, name := range names {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendText(b, name); err != nil {
				return nil, err
			}
			if b, err = appendJSON(append(b, ':'), v[name]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	}
	data, err := json.Marshal(value)
	return append(b, data...), err
}

// appendText leaves to encoding/json what needs escapes.
func appendText(b []byte, text string) ([]byte, error) {
	if len(b) > maxResponseBytes {
		return nil, errTooLarge
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			data, err := json.Marshal(text)
			return append(b, data...), err
		}
	}
	return append(append(append(b, '"'), text...), '"'), nil
}
