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
		owner, want string
	}{
		"an object of nobody":                       {"", "let the parent adopt it by its labels"},
		"the object of another parent":              {"Thing ns/b", "by Thing ns/b; delete or rename one of them"},
		"the object of a former parent of the name": {"Thing ns/a", "the garbage collector deletes it then, and it is created again"},
	} {
		t.Run(name, func(t *testing.T) {
			err := &apply.ConflictError{Key: children.Key{Kind: "Pod", Namespace: "ns", Name: "x"}, Parent: "Thing ns/a", Owner: tc.owner}
			if text := err.Error(); !strings.HasPrefix(text, "Pod ns/x exists") || !strings.HasSuffix(text, tc.want) {
				t.Errorf("it says %q, want %q at its end", text, tc.want)
			}
		})
	}
}
