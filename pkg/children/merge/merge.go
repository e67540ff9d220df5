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

package merge

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/scratch"
)

// Difference is a place where the observed object does not hold what is desired.
type Difference struct {
	// Path names the place, for example spec.ports[53,UDP].name.
	Path string
	// Observed is the value there; nil, with Present false, if there is none.
	Observed any
	Present  bool
	// Desired is the value wanted; nil with Removed true if it is to be removed.
	Desired any
	Removed bool
	// Applied says that the desired value is the one that was applied last.
	Applied bool
}

// Keep decides about a difference: true leaves the observed value as it is.
type Keep func(Difference) bool

// Objects merges desired into observed; keep is called for every difference. The result shares memory with the inputs and must not be
// changed. An error says that the types of the three do not fit together.
func Objects(observed, last, desired map[string]any, schema Schema, keep Keep) (map[string]any, error) {
	m := merger{keep: keep}
	merged, err := m.object(nil, observed, last, desired, object{schema})
	if err != nil {
		return nil, fmt.Errorf("can't merge desired changes: %w", err)
	}
	return merged, nil
}

type merger struct{ keep Keep }

// differs reports whether a difference stays as it is.
func (m *merger) differs(p *path, d Difference) bool {
	d.Path = p.String()
	return m.keep(d)
}

// value merges one value. It returns the value to be there and whether there is to be one.
func (m *merger) value(p *path, observed any, present bool, last any, was bool, desired any, schema Schema) (any, bool, error) {
	switch o := observed.(type) {
	case map[string]any:
		merged, err := m.object(p, o, last, desired, schema)
		return merged, true, err
	case []any:
		return m.list(p, o, last, desired, schema)
	}
	if desired == nil && !present {
		// The server would drop it; there is nothing to say.
		return nil, false, nil
	}
	if present && Equal(observed, desired) {
		return observed, true, nil
	}
	if m.differs(p, Difference{Observed: observed, Present: present, Desired: desired, Applied: was && Equal(last, desired)}) {
		return observed, present, nil
	}
	return desired, true, nil
}

func (m *merger) object(p *path, observed map[string]any, last, desired any, schema Schema) (map[string]any, error) {
	was, _ := last.(map[string]any) // Applied in another version of the kind, it may have been anything.
	if d, ok := schema.(declared); ok && d.Atomic() {
		was = observed
	}
	want, err := as[map[string]any](p, desired, "an object")
	if err != nil {
		return nil, err
	}
	merged := observed
	set := func(name string, value any, present bool) {
		if sharesWith(merged, observed) {
			merged = make(map[string]any, len(observed)+1)
			maps.Copy(merged, observed)
		}
		if present {
			merged[name] = value
		} else {
			delete(merged, name)
		}
	}
	if err := m.dropped(p, observed, was, want, schema, set); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value, present := observed[name]
		before, applied := was[name]
		next, keep, err := m.value(p.field(name), value, present, before, applied, want[name], field(schema, name))
		if err != nil {
			return nil, err
		}
		if keep != present || !same(next, value) {
			set(name, next, keep)
		}
	}
	return merged, nil
}

// dropped removes the fields that were applied last and are not desired.
func (m *merger) dropped(p *path, observed, was, want map[string]any, schema Schema, set func(name string, value any, present bool)) error {
	for _, name := range slices.Sorted(maps.Keys(was)) {
		value, there := observed[name]
		if _, still := want[name]; still || !there {
			continue
		}
		rest, stays, err := m.remove(p.field(name), value, was[name], field(schema, name))
		if err != nil {
			return err
		}
		if !stays || !same(rest, value) {
			set(name, rest, stays)
		}
	}
	return nil
}

// remove takes away a value that was applied last and is not desired. What others added to it stays.
func (m *merger) remove(p *path, observed, last any, schema Schema) (any, bool, error) {
	if othersHave(observed, last, schema) {
		return m.value(p, observed, true, last, true, nil, schema)
	}
	return observed, m.differs(p, Difference{Observed: observed, Present: true, Removed: true}), nil
}

func (m *merger) list(p *path, observed []any, last, desired any, schema Schema) (any, bool, error) {
	was, _ := last.([]any) // As in object.
	want, err := as[[]any](p, desired, "a list")
	if err != nil {
		return nil, false, err
	}
	if Equal(observed, desired) {
		return observed, true, nil
	}
	kind, keys := listType(schema)
	if kind == "" {
		if guessed := guessKey(observed, was, want); guessed != "" {
			kind, keys = "map", []string{guessed}
		}
	}
	if kind == "set" || kind == "map" && keyed(observed) && keyed(was) && keyed(want) {
		merged, err := m.keyed(p, observed, was, want, keys, item(schema))
		return merged, true, err
	}
	if m.differs(p, Difference{Observed: observed, Present: true, Desired: desired, Applied: last != nil && Equal(last, desired)}) {
		return observed, true, nil
	}
	return desired, true, nil
}

// keyed merges lists of objects as maps, and sets, whose elements are their own keys. Observed elements keep their order, new ones come after
// them in theirs.
func (m *merger) keyed(p *path, observed, was, want []any, keys []string, schema Schema) ([]any, error) {
	lastByKey, wantByKey := index(was, keys, schema), index(want, keys, schema)
	merged := make([]any, 0, len(observed)+len(want))
	changed := false
	seen := make(map[string]struct{}, len(observed))
	for i, key := range keysOf(observed, keys, schema) {
		element := observed[i]
		seen[key] = struct{}{}
		desired, wanted := wantByKey[key]
		if !wanted {
			if _, ours := lastByKey[key]; ours &&
				!m.differs(p.at(key), Difference{Observed: element, Present: true, Removed: true}) {
				changed = true
				continue
			}
			merged = append(merged, element)
			continue
		}
		before, applied := lastByKey[key]
		next, _, err := m.value(p.at(key), element, true, before, applied, desired, schema)
		if err != nil {
			return nil, err
		}
		changed = changed || !same(next, element)
		merged = append(merged, next)
	}
	for i, key := range keysOf(want, keys, schema) {
		before, applied := lastByKey[key]
		if _, there := seen[key]; there || m.differs(p.at(key), Difference{Desired: want[i], Applied: applied && Equal(before, want[i])}) {
			continue
		}
		merged = append(merged, want[i])
		seen[key] = struct{}{} // A set has each once.
		changed = true
	}
	if !changed {
		return observed, nil
	}
	return merged, nil
}

// same reports whether two values are one and the same, without looking into them.
func same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && sharesWith(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	}
	return reflect.TypeOf(a) == reflect.TypeOf(b) && a == b
}

func sharesWith(a, b map[string]any) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// as returns a desired value as an object or a list, which what names; the zero value for null.
func as[T any](p *path, value any, what string) (T, error) {
	is, ok := value.(T)
	if !ok && value != nil {
		return is, fmt.Errorf("desired[%s]: expecting %s, got %s", p, what, typeName(value))
	}
	return is, nil
}

func typeName(value any) string {
	switch value.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	}
	return "a number"
}

// path is a place in an object, from the inside out.
type path struct {
	outer *path
	step  string
	item  bool
}

func (p *path) field(name string) *path { return &path{outer: p, step: name} }
func (p *path) at(key string) *path     { return &path{outer: p, step: key, item: true} }

// String returns the path as people write it.
func (p *path) String() string {
	if p == nil {
		return ""
	}
	outer := p.outer.String()
	switch {
	case p.item:
		return outer + "[" + p.step + "]"
	case outer == "":
		return p.step
	}
	return outer + "." + p.step
}

// Equal reports whether two decoded JSON values are the same: numbers by value, so that 1.0 is 1.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, Equal)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Equal)
	case int64:
		if b, ok := b.(float64); ok {
			return float64(a) == b
		}
	case float64:
		if b, ok := b.(int64); ok {
			return a == float64(b)
		}
	}
	return a == b // Neither is an object or a list if the types are the same.
}

// guessed are the fields by which the elements of a list are identified where no schema says (docs/reference/contract.md#s12.3).
var guessed = []string{"containerPort", "port", "mountPath", "name", "uid", "ip", "path"}

func guessKey(lists ...[]any) string {
	for _, key := range guessed {
		elements, with := 0, 0
		for _, list := range lists {
			elements += len(list)
			for _, element := range list {
				o, _ := element.(map[string]any)
				if _, ok := o[key]; ok {
					with++
				}
			}
		}
		if with == elements && elements > 0 {
			return key
		}
	}
	return ""
}

func keyed(list []any) bool {
	return !slices.ContainsFunc(list, func(element any) bool {
		_, ok := element.(map[string]any)
		return !ok
	})
}

func index(list []any, keys []string, schema Schema) map[string]any {
	result := make(map[string]any, len(list))
	for i, key := range keysOf(list, keys, schema) {
		result[key] = list[i]
	}
	return result
}

// keysOf returns the keys of a list's elements. The second element of a key gets another one, and so on: the API server
// takes some lists in which a key is there twice, such as environment variables, and where the key is guessed the
// elements may differ in another field, such as a port's protocol.
func keysOf(list []any, keys []string, schema Schema) []string {
	result := make([]string, len(list))
	if keys == nil { // Elements of a set are their own keys.
		for i, element := range list {
			result[i] = stringify(element)
		}
		return result
	}
	times := make(map[string]int, len(list))
	for i, element := range list {
		key := keyOf(element, keys, schema)
		times[key]++
		for base, n := key, times[key]; n > 1; n++ {
			if key = base + "#" + strconv.Itoa(n); times[key] == 0 {
				times[key], times[base] = 1, n // The next one begins here: a list may be long.
				break
			}
		}
		result[i] = key
	}
	return result
}

func keyOf(element any, keys []string, schema Schema) string {
	o, _ := element.(map[string]any)
	text := ""
	for i, key := range keys {
		value, ok := o[key]
		if f := field(schema, key); !ok && f != nil {
			value, _ = f.Default()
		}
		part := stringify(value)
		if i > 0 {
			part = text + "," + part
		}
		text = part
	}
	return text
}

func stringify(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// othersHave reports whether something in a value that was applied last is not of what was applied: entries of a map, or elements of a
// list with keys. What else is in an object may be a default, which is nobody's.
func othersHave(observed, last any, schema Schema) bool {
	switch observed := observed.(type) {
	case map[string]any:
		was, ok := last.(map[string]any)
		if schema == nil || !schema.Shared() || !ok && last != nil {
			return false
		}
		for name, value := range observed {
			if before, ours := was[name]; !ours || othersHave(value, before, field(schema, name)) {
				return true
			}
		}
	case []any:
		was, ok := last.([]any)
		if !ok && last != nil {
			return false
		}
		if kind, keys := listType(schema); kind == "set" || kind == "map" && keyed(observed) && keyed(was) {
			ours := index(was, keys, item(schema))
			return slices.ContainsFunc(keysOf(observed, keys, item(schema)), func(key string) bool {
				_, known := ours[key]
				return !known
			})
		}
	}
	return false
}

// Annotation is where a child keeps what was applied to it last (docs/reference/contract.md#s12.1).
const Annotation = "metacontroller.k8s.io/last-applied-configuration"

// hashed marks the hash that stands for a value of a Secret.
const hashed = "sha256:"

// Encode returns the text of the annotation for a desired object: its JSON with sorted keys. For a Secret it has hashes
// in place of the values, which must not be found outside of data (docs/reference/compatibility.md#d12).
func Encode(desired map[string]any) (string, error) {
	if IsSecret(desired) {
		redacted := maps.Clone(desired)
		for _, field := range []string{"data", "stringData"} {
			if values, ok := desired[field].(map[string]any); ok {
				redacted[field] = hashValues(values)
			}
		}
		desired = redacted
	}
	buffer := scratch.Borrow()
	defer scratch.Return(buffer)
	if err := json.NewEncoder(buffer).Encode(desired); err != nil {
		return "", fmt.Errorf("encoding the configuration to be applied: %w", err)
	}
	// The encoder ends with a line break.
	return string(buffer.Bytes()[:buffer.Len()-1]), nil
}

// Decode returns the object in the text of the annotation. Text that is empty or damaged counts as nothing applied.
func Decode(text string) map[string]any {
	var last map[string]any
	if err := utiljson.Unmarshal([]byte(text), &last); err != nil {
		return nil
	}
	return last
}

// IsSecret reports whether a desired object is a Secret.
func IsSecret(desired map[string]any) bool {
	return desired["apiVersion"] == "v1" && desired["kind"] == "Secret"
}

// Observable returns a desired object in the form in which the API server shows it: the stringData of a Secret, which
// can only be written, becomes data, and its base64 has no line breaks. Other objects are returned as they are.
func Observable(desired map[string]any) map[string]any {
	if !IsSecret(desired) {
		return desired
	}
	values, _ := desired["stringData"].(map[string]any)
	written, _ := desired["data"].(map[string]any)
	data := make(map[string]any, len(written)+len(values))
	for name, value := range written {
		if encoded, ok := value.(string); ok {
			value = unwrapped.Replace(encoded)
		}
		data[name] = value
	}
	for name, value := range values {
		if plain, ok := value.(string); ok {
			data[name] = base64.StdEncoding.EncodeToString([]byte(plain))
		}
	}
	shown := maps.Clone(desired)
	delete(shown, "stringData")
	if len(data) > 0 {
		shown["data"] = data
	}
	return shown
}

// unwrapped returns base64 without line breaks, which API servers take and do not keep.
var unwrapped = strings.NewReplacer("\n", "", "\r", "")

func hashValues(values map[string]any) map[string]any {
	result := make(map[string]any, len(values))
	for name, value := range values {
		if value == nil {
			result[name] = nil
			continue
		}
		sum := sha256.Sum256([]byte(stringify(value)))
		result[name] = hashed + hex.EncodeToString(sum[:16])
	}
	return result
}
