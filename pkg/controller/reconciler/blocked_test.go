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

package reconciler

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

func child(name string) children.Key {
	return children.Key{Group: "g", Kind: "Widget", Namespace: "ns", Name: name}
}

func conflict(name string) error { return &apply.ConflictError{Key: child(name), Parent: "Thing ns/a"} }

// TestAParentIsBlockedByWhatTheErrorOfItsLastSyncNames records the errors of syncs of the parents a and b, one after the other.
func TestAParentIsBlockedByWhatTheErrorOfItsLastSyncNames(t *testing.T) {
	type sync struct {
		parent string
		err    error
	}
	other := errors.New("another child")
	for name, tc := range map[string]struct {
		reason string
		syncs  []sync
		// blocked are the parents that the objects v and w block.
		v, w []string
	}{
		"no sync":               {"Nothing is known.", nil, nil, nil},
		"a sync succeeds":       {"Nothing blocks it.", []sync{{"a", nil}}, nil, nil},
		"another error":         {"It names no object.", []sync{{"a", other}}, nil, nil},
		"a conflict":            {"It names the object.", []sync{{"a", conflict("w")}}, nil, []string{"a"}},
		"wrapped":               {"What wraps it says what was being done.", []sync{{"a", fmt.Errorf("creating it: %w", conflict("w"))}}, nil, []string{"a"}},
		"joined":                {"Each child is an error.", []sync{{"a", errors.Join(other, conflict("v"), conflict("w"))}}, []string{"a"}, []string{"a"}},
		"joined, wrapped twice": {"Children of a sync are.", []sync{{"a", fmt.Errorf("x: %w", errors.Join(other, fmt.Errorf("y: %w", conflict("w"))))}}, nil, []string{"a"}},
		"joined in a sentence":  {"Each is wrapped.", []sync{{"a", fmt.Errorf("%w and %w", conflict("v"), conflict("w"))}}, []string{"a"}, []string{"a"}},
		"the same twice":        {"It is one object.", []sync{{"a", errors.Join(conflict("w"), conflict("w"))}}, nil, []string{"a"}},
		"two parents":           {"Both want the name.", []sync{{"a", conflict("w")}, {"b", conflict("w")}}, nil, []string{"a", "b"}},
		"it succeeds then":      {"The last sync counts.", []sync{{"a", conflict("w")}, {"a", nil}}, nil, nil},
		"another error then":    {"The last sync counts.", []sync{{"a", conflict("w")}, {"a", other}}, nil, nil},
		"another object then":   {"The last sync counts.", []sync{{"a", conflict("w")}, {"a", conflict("v")}}, []string{"a"}, nil},
		"one less then":         {"The last sync counts.", []sync{{"a", errors.Join(conflict("v"), conflict("w"))}, {"a", conflict("v")}}, []string{"a"}, nil},
		"again":                 {"It is there still.", []sync{{"a", conflict("w")}, {"a", nil}, {"a", conflict("w")}}, nil, []string{"a"}},
		"the other succeeds":    {"Each has its own.", []sync{{"a", conflict("w")}, {"b", conflict("w")}, {"b", nil}}, nil, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var s parents
			record := func(name string, err error) {
				s.change(s.add(parent.Key{Namespace: "ns", Name: name}), func(r *record) { r.obstacles = conflicts(err) })
			}
			for _, sync := range tc.syncs {
				record(sync.parent, sync.err)
			}
			for object, want := range map[string][]string{"v": tc.v, "w": tc.w, "unknown": nil} {
				var got []string
				for _, key := range s.blockedBy(child(object)) {
					got = append(got, key.Name)
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("%s blocks %q, want %q. %s", object, got, want, tc.reason)
				}
			}
			for _, name := range []string{"a", "b"} {
				s.remove(parent.Key{Namespace: "ns", Name: name})
			}
			if s.total() != (sums{}) || len(s.blocked) > 0 {
				t.Errorf("left behind: %+v, %v", s.total(), s.blocked)
			}
		})
	}
}
