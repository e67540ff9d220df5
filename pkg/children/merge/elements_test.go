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
	"fmt"
	"testing"
)

func TestElementsAreFoundHoweverManyThereAre(t *testing.T) {
	one := []any{"a", "1", int64(1), 2.5, true, nil, map[string]any{"a": int64(1)}, []any{"x"}, int64(1<<60 + 1)}
	same := []any{"a", "1", 1.0, 2.5, true, nil, map[string]any{"a": 1.0}, []any{"x"}, int64(1<<60 + 1)}
	others := []any{"b", "2", int64(2), 2.25, false, map[string]any{}, []any{}, int64(1 << 60)}
	for _, more := range []int{0, 200} {
		e := elementsOf(one)
		for i := range more {
			e[mapKey(fmt.Sprint("more ", i))] = true
		}
		for _, element := range same {
			if !e.have(element) {
				t.Errorf("with %d more there is no %v", more, element)
			}
		}
		for _, element := range others {
			if e.have(element) {
				t.Errorf("with %d more there is %v", more, element)
			}
		}
		if more > 0 && (!e.have("more 0") || !e.have(fmt.Sprint("more ", more-1)) || e.have(fmt.Sprint("more ", more))) {
			t.Errorf("with %d more they are not those", more)
		}
	}
}
