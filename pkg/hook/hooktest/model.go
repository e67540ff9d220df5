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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// defaultRounds is how many calls a hook may take to come to rest.
const defaultRounds = 20

// model is a cluster with one parent and its children.
type model struct {
	ctx        context.Context //nolint:containedctx // A model lives for one history.
	trial      Trial
	controller []byte
	rules      []children.Rule
	// version is that of the sync and finalize hooks.
	version map[hook.Name]v1alpha1.HookVersion
	now     time.Time

	parent *hook.Object
	// applied is what was wanted of each child last.
	children map[children.Key]*hook.Object
	applied  map[children.Key]map[string]any
	writes   int
	// first is the first call of a hook.
	first *call
}

// call is a call of a hook.
type call struct {
	handler           http.Handler
	request, response []byte
	at                time.Time
}

func newModel(ctx context.Context, tr Trial) (*model, error) {
	m := &model{ctx: ctx, trial: tr, now: time.Unix(0, 0), version: map[hook.Name]v1alpha1.HookVersion{}}
	if m.trial.Rounds == 0 {
		m.trial.Rounds = defaultRounds
	}
	var rules []v1alpha1.ResourceRule
	var err error
	switch {
	case (tr.Composite == nil) == (tr.Decorator == nil) || tr.Parent == nil || tr.Sync == nil:
		return nil, errors.New("a trial needs a parent, a sync hook, and a CompositeController or a DecoratorController")
	case tr.Composite != nil:
		for _, r := range tr.Composite.Spec.ChildResources {
			rules = append(rules, r.ResourceRule)
		}
		if h := tr.Composite.Spec.Hooks; h != nil {
			m.declare(h.Sync, h.Finalize)
		}
		m.controller, err = wire.EncodeComposite(tr.Composite, wire.EncodeOptions{})
	default:
		for _, r := range tr.Decorator.Spec.Attachments {
			rules = append(rules, r.ResourceRule)
		}
		if h := tr.Decorator.Spec.Hooks; h != nil {
			m.declare(h.Sync, h.Finalize)
		}
		m.controller, err = wire.EncodeDecorator(tr.Decorator, wire.EncodeOptions{})
	}
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		resource, err := r.GroupVersionResource()
		if err != nil {
			return nil, fmt.Errorf("the rule of %s: %w", r.Resource, err)
		}
		kind := tr.Kinds[r.Resource]
		if kind == "" {
			return nil, fmt.Errorf("the trial's Kinds have no kind for %s", r.Resource)
		}
		m.rules = append(m.rules, children.Rule{Kind: resource.GroupVersion().WithKind(kind), Resource: resource})
	}
	parent, err := show(tr.Parent)
	if err != nil {
		return nil, err
	}
	if m.trial.Parent, err = parent.stored(); err != nil {
		return nil, err
	}
	m.create()
	return m, nil
}

// declare takes the versions of the hooks.
func (m *model) declare(sync, finalize *v1alpha1.Hook) {
	for name, h := range map[hook.Name]*v1alpha1.Hook{hook.Sync: sync, hook.Finalize: finalize} {
		if h != nil && h.Version != nil {
			m.version[name] = *h.Version
		}
	}
}

// create creates the parent.
func (m *model) create() {
	m.parent = m.trial.Parent.DeepCopy()
	m.children, m.applied = map[children.Key]*hook.Object{}, map[children.Key]map[string]any{}
	m.born(m.parent)
}

// born gives an object what the API server gives to new ones.
func (m *model) born(o *hook.Object) {
	m.writes++
	o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", m.writes)))
	o.SetResourceVersion(strconv.Itoa(m.writes))
	o.SetGeneration(1)
	o.SetCreationTimestamp(metav1.Time{Time: m.now})
}

// wrote notes a change of an object.
func (m *model) wrote(o *hook.Object, generation bool) {
	m.writes++
	o.SetResourceVersion(strconv.Itoa(m.writes))
	if generation {
		o.SetGeneration(o.GetGeneration() + 1)
	}
}

func (m *model) do(s Step) error {
	switch s.Do {
	case Edit:
		edit := m.trial.Edits[s.Edit]
		if edit == nil {
			return errors.New("the trial has no such edit")
		}
		return m.alter(m.parent, edit, true)
	case DeleteChild:
		if key, ok := m.child(s.Child); ok {
			delete(m.children, key)
			delete(m.applied, key)
		}
	case EditChild:
		if key, ok := m.child(s.Child); ok {
			spoil(m.children[key].Object, m.applied[key])
			m.wrote(m.children[key], true)
		}
	case Call:
		_, err := m.sync()
		return err
	case Rest:
		return m.rest()
	case Delete:
		return m.remove()
	default:
		return errors.New("there is no such step")
	}
	return nil
}

// alter has a function of the trial change an object, and leaves it as a cluster stores it.
func (m *model) alter(o *hook.Object, change func(*hook.Object), generation bool) error {
	before, err := show(o)
	if err != nil {
		return err
	}
	change(o)
	after, err := show(o)
	if err != nil {
		return err
	}
	stored, err := after.stored()
	if err != nil {
		return err
	}
	o.Object = stored.Object
	if !bytes.Equal(before.encoded, after.encoded) {
		m.wrote(o, generation)
	}
	return nil
}

func (m *model) child(n int) (children.Key, bool) {
	keys := m.keys()
	if len(keys) == 0 {
		return children.Key{}, false
	}
	return keys[(n%len(keys)+len(keys))%len(keys)], true // The remainder of a negative number is negative.
}

// keys returns the keys of the children in an order that is always the same.
func (m *model) keys() []children.Key {
	return slices.SortedFunc(maps.Keys(m.children), children.Key.Compare)
}

// spoil takes what is wanted of a child out of it, but for what names it.
func spoil(child, wanted map[string]any) {
	for field := range wanted {
		switch field {
		case "apiVersion", "kind", "metadata":
		default:
			delete(child, field)
		}
	}
}

// rest calls the hook until nothing changes any more.
func (m *model) rest() error {
	for range m.trial.Rounds {
		before := m.writes
		changed, err := m.sync()
		if err != nil {
			return err
		}
		if err := m.progress(); err != nil {
			return err
		}
		if m.writes == before && changed == "" {
			return nil
		}
	}
	changed, err := m.sync()
	if err != nil {
		return err
	}
	return fmt.Errorf("the hook does not come to rest within %d calls; the last one still changes %s", m.trial.Rounds, changed)
}

// progress lets the controllers of the children work.
func (m *model) progress() error {
	if m.trial.Progress == nil {
		return nil
	}
	for _, key := range m.keys() {
		if err := m.alter(m.children[key], m.trial.Progress, false); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the parent, and creates a new one when it is gone.
func (m *model) remove() error {
	if m.trial.Finalize != nil {
		m.parent.SetDeletionTimestamp(&metav1.Time{Time: m.now})
		m.wrote(m.parent, true)
		for round := 0; ; round++ {
			finalized, err := m.finalize()
			if err != nil {
				return err
			}
			if finalized {
				break
			}
			if round == m.trial.Rounds {
				return fmt.Errorf("the finalize hook does not say that it is finalized within %d calls", round)
			}
			if err := m.progress(); err != nil {
				return err
			}
		}
	}
	m.create()
	return nil
}

// apply makes the children as they are wanted, merged as the server does. It returns what that changes, empty if nothing.
func (m *model) apply(wanted []children.Desired) (changed string, err error) {
	keep := map[children.Key]bool{}
	for _, desired := range wanted {
		want, key := applicable(desired.Content), desired.Key
		keep[key] = true
		child := m.children[key]
		if child == nil {
			child = want.DeepCopy()
			m.born(child)
			child.SetOwnerReferences([]metav1.OwnerReference{{
				APIVersion: m.parent.GetAPIVersion(), Kind: m.parent.GetKind(), Name: m.parent.GetName(), UID: m.parent.GetUID(),
				Controller: new(true), BlockOwnerDeletion: new(true),
			}})
			m.children[key], changed = child, "that "+key.String()+" exists"
		} else {
			merged, err := merge.Objects(child.Object, m.applied[key], want.Object, nil, func(merge.Difference) bool { return false })
			if err != nil {
				return "", fmt.Errorf("%s: %w", key, err)
			}
			if !sameJSON(merged, child.Object) {
				child.Object = (&hook.Object{Object: merged}).DeepCopy().Object
				m.wrote(child, true)
				changed = key.String()
			}
		}
		m.applied[key] = want.Object
	}
	for _, key := range m.keys() {
		if !keep[key] {
			delete(m.children, key)
			delete(m.applied, key)
			m.writes++
			changed = "that " + key.String() + " is gone"
		}
	}
	return changed, nil
}

// applicable returns what of a child that a hook returned is applied: not its status, nor what the cluster says in its metadata, as a hook returns
// it that changes and returns an object which it was sent (docs/reference/contract.md#s12.5).
func applicable(content map[string]any) *hook.Object {
	want := (&hook.Object{Object: content}).DeepCopy()
	delete(want.Object, "status")
	metadata, _ := want.Object["metadata"].(map[string]any) // It has a name.
	for _, field := range []string{
		"selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "ownerReferences",
	} {
		delete(metadata, field)
	}
	return want
}

func sameJSON(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}
