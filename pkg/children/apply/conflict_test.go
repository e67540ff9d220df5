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

package apply_test

import (
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
)

func TestAConflictSaysWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		owner            string
		itself, attaches bool
		want             string
	}{
		"an object of nobody":                       {"", false, false, "let the parent adopt it by its labels"},
		"an object of nobody, for a decorator":      {"", false, true, "not controlled by Thing ns/a; delete or rename one of them"},
		"the object of another parent":              {"Thing ns/b", false, false, "by Thing ns/b; delete or rename one of them"},
		"the object of a former parent of the name": {"Thing ns/a", false, false, "the garbage collector deletes it then, and it is created again"},
		"the parent itself":                         {"", true, false, "return its status as that of the response"},
		"the target itself":                         {"", true, true, "return labels, annotations or status of the response in place of it"},
		"the target itself, which is owned":         {"Thing ns/b", true, true, "return labels, annotations or status of the response in place of it"},
	} {
		t.Run(name, func(t *testing.T) {
			err := &apply.ConflictError{
				Key: children.Key{Kind: "Pod", Namespace: "ns", Name: "x"}, Parent: "Thing ns/a", Owner: tc.owner, Itself: tc.itself, Attaches: tc.attaches,
			}
			if text := err.Error(); !strings.HasPrefix(text, "Pod ns/x ") || !strings.HasSuffix(text, tc.want) {
				t.Errorf("it says %q, want %q at its end", text, tc.want)
			}
		})
	}
}
