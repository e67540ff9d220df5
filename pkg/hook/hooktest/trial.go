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

package hooktest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// Trial plays histories to the hooks of a controller: users edit and delete a parent, and its children change and disappear, in a model
// of a cluster in memory. It checks what holds for every well-behaved hook:
//
//   - the same request gets the same response;
//   - responses decode strictly, and the server accepts them: children are of declared kinds, have a name, are unique and where they may be,
//     their labels and annotations are strings, and their labels match the selector of the parent, which has one;
//   - the hook comes to rest: once all is as it wants, its answer changes nothing any more;
//   - a parent that is being deleted is finalized in the end.
//
// The model is smaller than a cluster: there are no defaults, no admission and no other controllers but Progress, related objects are
// not shown, every child is updated in place, a child that the hook returns in another version than its rule has is shown with the apiVersion
// of the rule and otherwise as it is, and a target is not deleted where the response says "delete".
type Trial struct {
	// Composite or Decorator is the controller; exactly one of them is set.
	Composite *v1alpha1.CompositeController
	Decorator *v1alpha1.DecoratorController
	// Sync is the sync hook, and Finalize the finalize hook; nil if there is none. See [Composite], [Decorator] and [Remote].
	Sync, Finalize http.Handler
	// Kinds has the kind of each resource that the controller declares for children or attachments, as in "pods": "Pod".
	Kinds map[string]string
	// Namespaced says of these resources whether their objects are in namespaces. Of those that it does not have, it is not checked whether
	// children are where the kind allows them.
	Namespaced map[string]bool
	// Parent is the parent, or the target, as a user creates it. It is not modified. What encodes to JSON may be in it, as in what Edits
	// and Progress set; hooks, Edits and Progress meet it with the types that decoding makes of it: an int is an int64 then.
	Parent *hook.Object
	// Edits are what users do to it, by a name for messages: each function changes the object that it is given.
	Edits map[string]func(parent *hook.Object)
	// Progress does with a child what its own controller would, such as writing its status. Nil: nothing happens to children.
	Progress func(child *hook.Object)
	// Rounds is how many calls a hook may take to come to rest. Default 20.
	Rounds int
}

// Action is what happens in a step of a history.
type Action string

const (
	// Edit does one of the trial's edits.
	Edit Action = "edit"
	// Delete deletes the parent. A new one is created after it.
	Delete Action = "delete"
	// DeleteChild deletes a child.
	DeleteChild Action = "delete child"
	// EditChild changes what the hook wants of a child.
	EditChild Action = "edit child"
	// Call calls the hook once and applies its response.
	Call Action = "call"
	// Rest calls the hook and applies its responses until nothing changes any more.
	Rest Action = "rest"
)

// Step is a step of a history.
type Step struct {
	// Do says what happens.
	Do Action
	// Edit is the name of the edit.
	Edit string
	// Child is a number for the child; the remainder of its division by the number of children counts, and -1 is the last one.
	Child int
}

// String implements fmt.Stringer.
func (s Step) String() string {
	switch s.Do {
	case Edit:
		return "edit: " + s.Edit
	case DeleteChild, EditChild:
		return fmt.Sprintf("%s %d", s.Do, s.Child)
	default:
		return string(s.Do)
	}
}

// length is the number of steps of a generated history.
const length = 30

// Generate makes a history from a seed: the same from the same seed, as long as the names of the edits stay the same.
func (tr Trial) Generate(seed uint64) []Step {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // A history shall repeat.
	edits := slices.Sorted(maps.Keys(tr.Edits))
	steps := make([]Step, 0, length+1)
	for len(steps) < length {
		step := Step{Child: r.IntN(length)}
		switch n := r.IntN(20); {
		case n < 6 && len(edits) > 0:
			step.Do, step.Edit = Edit, edits[r.IntN(len(edits))]
		case n < 8:
			step.Do = DeleteChild
		case n < 10:
			step.Do = EditChild
		case n < 16:
			step.Do = Call
		case n < 19:
			step.Do = Rest
		default:
			step.Do = Delete
		}
		steps = append(steps, step)
	}
	return append(steps, Step{Do: Rest}, Step{Do: Delete})
}

// Run plays the histories of the seeds from 1 to n, and fails the test with the first one in which something is wrong. It takes a second at
// least: the first request is sent again then, since responses may have the time in them.
func (tr Trial) Run(tb testing.TB, n uint64) {
	tb.Helper()
	var first *model
	for seed := uint64(1); seed <= n; seed++ {
		steps := tr.Generate(seed)
		m, done, err := tr.play(tb.Context(), steps)
		if err != nil {
			tb.Fatalf("seed %d: %v, after these steps:\n%s", seed, err, table(steps[:done]))
		}
		if first == nil {
			first = m
		}
	}
	if first == nil {
		return
	}
	if err := first.callLater(); err != nil {
		tb.Fatal(err)
	}
}

func table(steps []Step) string {
	var b strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&b, "%3d %s\n", i+1, s)
	}
	return b.String()
}

// Play plays a history. Requests to hooks have the context. The error says what is wrong.
func (tr Trial) Play(ctx context.Context, steps []Step) error {
	_, _, err := tr.play(ctx, steps)
	return err
}

// play returns the model, and how many steps were begun.
func (tr Trial) play(ctx context.Context, steps []Step) (*model, int, error) {
	m, err := newModel(ctx, tr)
	if err != nil {
		return nil, 0, err
	}
	for i, s := range steps {
		if err := m.do(s); err != nil { //nolint:contextcheck // The model has it.
			return m, i + 1, fmt.Errorf("%s: %w", s, err)
		}
	}
	return m, len(steps), nil
}
