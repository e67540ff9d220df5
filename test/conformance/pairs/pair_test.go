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

package pairs

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	// soon is how late a controller may see a change on a busy machine. Without a wake-up it would see it at the resync, half an
	// hour later.
	soon = cluster.Limit
	// Labels by which the first and the second controller of a pair select parents.
	firstLabel, secondLabel = "pairs.example.com/first", "pairs.example.com/second"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// combinations are the kinds of the first and the second controller.
var combinations = []struct {
	name          string
	first, second fixture.Kind
}{
	{"CompositeAndComposite", fixture.Composite, fixture.Composite},
	{"CompositeAndDecorator", fixture.Composite, fixture.Decorator},
	{"DecoratorAndComposite", fixture.Decorator, fixture.Composite},
	{"DecoratorAndDecorator", fixture.Decorator, fixture.Decorator},
}

// A member is one of two controllers, and its hook.
type member struct {
	*controllers.Controller

	definition fixture.Definition
	script     *fixture.Script

	mu sync.Mutex
	// seen is the last generation of each parent that the hook was called with.
	seen map[string]int64
}

// A pair is two controllers that select the same parents. The first has large ConfigMaps as children, whose events take their
// time, and the second Secrets.
type pair struct {
	*fixture.Test

	first, second *member
}

// newPair makes the controllers and waits until both run.
func newPair(t *testing.T, e *fixture.Environment, first, second fixture.Kind, padding int) *pair {
	t.Helper()
	p := &pair{Test: e.NewTest(t)}
	large := strings.Repeat("x", padding)
	p.first = p.newMember(first, "first", firstLabel, fixture.ConfigMaps, func(name, n string) *hook.Object {
		return fixture.ConfigMap(name, map[string]any{"n": n, "large": large})
	})
	p.second = p.newMember(second, "second", secondLabel, fixture.Secrets, func(name, n string) *hook.Object {
		return &hook.Object{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name}, "stringData": map[string]any{"n": n},
		}}
	})
	for _, m := range p.members() {
		m.Controller = p.Run(m.definition)
	}
	return p
}

func (p *pair) members() []*member { return []*member{p.first, p.second} }

func (p *pair) newMember(kind fixture.Kind, suffix, label string, r schema.GroupVersionResource, child func(name, n string) *hook.Object) *member {
	m := &member{script: p.NewScript(kind), seen: map[string]int64{}}
	m.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		m.note(c.Parent)
		n, name := fixture.Value(c.Parent, "spec", "n"), c.Parent.GetName()
		reply := &fixture.Reply{Children: []*hook.Object{child(name+"-"+suffix, n)}}
		if kind == fixture.Decorator {
			reply.Annotations = map[string]*string{suffix: &n}
		} else {
			// Two composites write the same status, or they would fight.
			reply.Status = map[string]any{"n": n}
		}
		return reply, nil
	})
	m.definition = fixture.Definition{
		Kind: kind, Name: p.Name + "-" + suffix, Selector: map[string]string{fixture.Label: p.Name, label: "yes"},
		Children: []fixture.Child{{Resource: r, Method: v1alpha1.ChildUpdateInPlace}}, Sync: p.Serve(m.script),
	}
	return m
}

func (m *member) note(parent *hook.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[parent.GetName()] = parent.GetGeneration()
}

// generation returns the last generation of a parent that the hook was called with.
func (m *member) generation(name string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[name]
}

// parent creates a Thing that both controllers select.
func (p *pair) parent(name string) {
	p.T.Helper()
	p.Selected(fixture.Things, name, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{firstLabel: "yes", secondLabel: "yes"}},
		"spec":     map[string]any{"n": "0"},
	})
}

// change writes a parent's spec, and returns its generation.
func (p *pair) change(name string, n int) int64 {
	p.T.Helper()
	return p.Patch(fixture.Things, name, fmt.Sprintf(`{"spec":{"n":"%d"}}`, n)).GetGeneration()
}

// sees waits until a controller's hook has been called with a generation of a parent.
func (p *pair) sees(m *member, name string, generation int64) {
	p.T.Helper()
	cluster.Eventually(p.T, soon, fmt.Sprintf("%s to see generation %d of %s", m.Name, generation, name), func(context.Context) (bool, string) {
		got := m.generation(name)
		return got >= generation, fmt.Sprintf("generation %d", got)
	})
}
