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

package loopguard

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Difference is a place at which two decoded JSON values differ.
type Difference struct {
	// Path is the place, such as status.lastSync.
	Path string
	// Before and After are the values there, nil for none.
	Before, After any
}

// First returns the first place at which two values differ that stand at path; false if they are equal. Lists of different lengths, or
// with the same elements in another order, differ as a whole.
func First(path string, before, after any) (Difference, bool) {
	switch b := before.(type) {
	case map[string]any:
		a, ok := after.(map[string]any)
		if !ok {
			break
		}
		names := slices.AppendSeq(slices.Collect(maps.Keys(b)), maps.Keys(a))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if d, differs := First(path+"."+name, b[name], a[name]); differs {
				return d, true
			}
		}
		return Difference{}, false
	case []any:
		a, ok := after.([]any)
		if !ok || len(a) != len(b) || reordered(b, a) {
			break
		}
		for i := range b {
			if d, differs := First(path+"["+strconv.Itoa(i)+"]", b[i], a[i]); differs {
				return d, true
			}
		}
		return Difference{}, false
	}
	if text(before) == text(after) {
		return Difference{}, false
	}
	return Difference{Path: path, Before: before, After: after}, true
}

// reordered reports whether two lists are different, and have the same elements.
func reordered(a, b []any) bool {
	before, after := make([]string, len(a)), make([]string, len(b))
	for i := range a {
		before[i] = text(a[i])
	}
	for i := range b {
		after[i] = text(b[i])
	}
	if slices.Equal(before, after) {
		return false
	}
	slices.Sort(before)
	slices.Sort(after)
	return slices.Equal(before, after)
}

func text(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		return "" // Not reached: it was decoded from JSON.
	}
	return string(encoded)
}

// Kinds of values, for people.
const (
	kindTime     = "a time"
	kindTimeText = "a text with a time"
	kindUUID     = "a UUID"
	kindText     = "a text"
	kindNumber   = "a number"
	kindList     = "a list"
	kindNothing  = "nothing"
)

var (
	uuid   = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d`)
)

func kindOf(value any) string {
	switch v := value.(type) {
	case nil:
		return kindNothing
	case bool:
		return "a boolean"
	case string:
		_, err := time.Parse(time.RFC3339, v)
		switch {
		case err == nil:
			return kindTime
		case uuid.MatchString(v):
			return kindUUID
		case moment.MatchString(v):
			return kindTimeText
		}
		return kindText
	case []any:
		return kindList
	case map[string]any:
		return "an object"
	default:
		return kindNumber
	}
}

// Kinds says what the two values are, without what is in them: they may be secret.
func (d Difference) Kinds() string {
	before, after := kindOf(d.Before), kindOf(d.After)
	switch {
	case before != after:
		return before + ", then " + after
	case before == kindList && d.reordered():
		return "a list, then the same list in another order"
	}
	_, name, _ := strings.Cut(after, " ")
	return before + ", then another " + name
}

// Advice says how a hook can return the same each time.
func (d Difference) Advice() string {
	switch kind := kindOf(d.After); {
	case kind == kindTime, kind == kindTimeText, kindOf(d.Before) == kindTime:
		return "Leave times out, or let them change only with something else"
	case kind == kindUUID:
		return "Derive it from the parent, such as its UID, instead of a random number"
	case kind == kindList && d.reordered():
		return "Sort the list"
	case kind == kindNumber:
		return "Derive it from what the hook is shown, and count neither calls nor seconds"
	}
	return "Return the same response for the same request: no times, no random values, and lists in a fixed order"
}

func (d Difference) reordered() bool {
	before, _ := d.Before.([]any)
	after, _ := d.After.([]any)
	return reordered(before, after)
}
