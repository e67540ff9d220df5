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

package composite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
)

// Observe implements reconciler.Kind: it finds the parent's children, adopts orphans that it selects and releases children that it no
// longer does (docs/reference/contract.md#s8).
func (k *kind) Observe(ctx context.Context, s *reconciler.Sync) error {
	selector, err := k.of(s.Key, s.Parent)
	if errors.Is(err, errNoSelector) && s.BuiltIn() {
		err = reconciler.NoSelector(discovery.BuiltIn)
	}
	if err != nil {
		return fmt.Errorf("can't claim children for %s: %w", s.Parent, err)
	}
	s.Scope = children.Scope{
		Field: "children", Declared: "spec.childResources", Namespace: s.Parent.Namespace(), Selector: selector,
	}
	if k.generate {
		s.Scope.Labels, s.Scope.Inherited = map[string]string{rollout.LabelControllerUID: string(s.Parent.UID())}, s.Parent.LabelSet()
	}
	claiming := claiming{
		kind: k, sync: s, released: map[children.Key]bool{},
		parent: children.Parent{UID: s.Parent.UID(), Deleting: s.Parent.Deleting(), Selector: selector},
	}
	return s.Children(func(i int, rule *children.Rule, informer *cache.Informer) error {
		shown, now, err := claiming.rule(ctx, rule, informer)
		if err != nil {
			return fmt.Errorf("can't claim %s children: %w", rule.Kind.Kind, err)
		}
		s.Show(i, shown, now)
		return nil
	})
}

// claiming is the claiming of one sync.
type claiming struct {
	*kind

	sync   *reconciler.Sync
	parent children.Parent
	// checked says that the API server was asked whether the parent is alive, which is done at most once a sync.
	checked, alive bool
	// released are the children that the sync has released.
	released map[children.Key]bool
}

// rule claims the children of one kind. It returns them as the hook is shown them, and as they are now.
func (c *claiming) rule(ctx context.Context, rule *children.Rule, informer *cache.Informer) (shown, now []*object.Object, err error) {
	namespace := c.sync.Key.Namespace
	candidates := informer.ControlledBy(c.parent.UID)
	if !c.parent.Deleting {
		candidates = append(candidates, informer.Orphans(namespace, c.parent.Selector)...)
	}
	var errs []error
	for _, o := range candidates {
		if namespace != "" && o.Namespace() != namespace {
			continue
		}
		claimed, err := c.one(ctx, rule, o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if claimed != nil {
			shown, now = append(shown, o), append(now, claimed)
		}
	}
	return shown, now, errors.Join(errs...)
}

// one adopts or releases a candidate where that is due, and returns it as it is then, nil if it is not a child.
func (c *claiming) one(ctx context.Context, rule *children.Rule, o *object.Object) (*object.Object, error) {
	target := client.Target{Resource: rule.Resource, Namespace: o.Namespace(), Name: o.Name()}
	switch c.parent.Decide(o) {
	case children.Claim:
		return o, nil
	case children.Adopt:
		if c.sync.Observes(o) {
			// A rule for another version of the same kind has adopted it.
			return o, nil
		}
		if c.sync.LeavesOwner(ctx, target, o, true) {
			return nil, nil
		}
		return c.adopt(ctx, target, o)
	case children.Release:
		if key := children.KeyOf(o); !c.released[key] { // By a rule for another version of the same kind.
			c.released[key] = true
			if c.sync.LeavesOwner(ctx, target, o, false) {
				return nil, nil
			}
			return nil, c.release(ctx, target, o)
		}
	case children.Ignore:
	}
	return nil, nil
}

func (c *claiming) adopt(ctx context.Context, target client.Target, o *object.Object) (*object.Object, error) {
	if alive, err := c.parentLives(ctx); err != nil || !alive {
		return nil, err
	}
	patch, err := children.AdoptPatch(o, children.OwnerOf(c.sync.Parent))
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Adopting child", "parent", c.sync.Parent, "child", o)
	written, err := c.sync.AdoptChild(ctx, target, o, patch)
	if client.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("adopting %s: %w", o, err)
	}
	c.sync.Event("ChildAdopted", "Adopted "+o.String())
	return written, nil
}

func (c *claiming) release(ctx context.Context, target client.Target, o *object.Object) error {
	patch, err := children.ReleasePatch(o, c.parent.UID)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Releasing child whose labels no longer match", "parent", c.sync.Parent, "child", o)
	err = c.sync.ReleaseChild(ctx, target, o, patch)
	if client.IsGone(err) || apierrors.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("releasing %s: %w", o, err)
	}
	c.sync.Event("ChildReleased", "Released "+o.String()+", whose labels do not match the selector any more")
	return nil
}

// parentLives asks the API server, not the informer, whether the parent is alive: what is adopted by a parent that was
// just deleted is deleted with it.
func (c *claiming) parentLives(ctx context.Context) (bool, error) {
	if c.checked {
		return c.alive, nil
	}
	live, err := c.shared.Cluster.Client.Get(ctx, c.sync.Target)
	if err != nil && !client.IsGone(err) {
		return false, fmt.Errorf("reading whether %s is alive: %w", c.sync.Parent, err)
	}
	c.checked = true
	c.alive = err == nil && live.UID() == c.parent.UID && !live.Deleting()
	return c.alive, nil
}

// errNoSelector is the error of a parent without a usable selector (docs/reference/contract.md#s7).
var errNoSelector = reconciler.NoSelector(discovery.Custom)

// selectors knows the selector of every parent, so that the parents of an orphan are found without looking at all of them.
type selectors struct {
	// generate says that each parent has one that is generated of its UID, which is remembered as a hash.
	generate bool
	seed     maphash.Seed

	mu sync.RWMutex
	// entries has what is known of each parent, and generated the parents by the hash of the UID.
	entries   map[parent.Key]selectorEntry
	generated map[uint64]parent.Key
	// postings has the selectors that are not generated by what they demand.
	postings *related.Postings[*compiled]
}

// selectorEntry is what is known of one parent: the hash of the UID if its selector is generated, else the selector.
type selectorEntry struct {
	hash uint64
	*compiled
}

// compiled is a selector that is not generated.
type compiled struct {
	key parent.Key
	// shown is the parent as the informer showed it last, of which nothing has to be compared to know that the entry is its. The lock guards it.
	shown    *object.Object
	uid      types.UID
	raw      []byte
	selector labels.Selector
	err      error
	posted   []related.Post
}

func newSelectors(generate bool) *selectors {
	return &selectors{
		generate: generate, seed: maphash.MakeSeed(), entries: map[parent.Key]selectorEntry{}, generated: map[uint64]parent.Key{},
		postings: related.NewPostings[*compiled](),
	}
}

func (s *selectors) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.entries)
}

// of returns the selector of a parent, or the reason why it has none.
func (s *selectors) of(key parent.Key, o *object.Object) (labels.Selector, error) {
	if s.generate {
		return labels.SelectorFromSet(labels.Set{rollout.LabelControllerUID: string(o.UID())}), nil
	}
	s.mu.RLock()
	c := s.entries[key].compiled
	known := c != nil && c.shown == o
	s.mu.RUnlock()
	if !known && (c == nil || !c.fits(o)) {
		c = compile(o)
	}
	return c.selector, c.err
}

// Remember takes note of a parent. Of two parents whose UIDs have the same hash, which no two are known to have, the orphans of one wait for its
// next sync.
func (s *selectors) Remember(key parent.Key, o *object.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former, known := s.entries[key]
	if s.generate {
		if hash := maphash.String(s.seed, string(o.UID())); !known || former.hash != hash {
			s.forget(key)
			s.entries[key], s.generated[hash] = selectorEntry{hash: hash}, key
		}
		return
	}
	if known && former.fits(o) {
		former.shown = o
		return
	}
	s.forget(key)
	c := compile(o)
	c.key, c.shown = key, o
	s.entries[key] = selectorEntry{compiled: c}
	if c.err == nil {
		c.posted = s.postings.Choose(key.Namespace, c.selector)
		s.postings.Add(c, c.posted)
	}
}

// Forget drops a parent.
func (s *selectors) Forget(key parent.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(key)
}

// forget is called with the lock held.
func (s *selectors) forget(key parent.Key) {
	e, known := s.entries[key]
	switch {
	case !known:
		return
	case e.compiled != nil:
		s.postings.Remove(e.compiled, e.posted)
	case s.generated[e.hash] == key:
		delete(s.generated, e.hash)
	}
	delete(s.entries, key)
}

// Orphan implements reconciler.Kind: it calls enqueue for every parent whose selector matches, of the orphan's namespace and
// cluster-scoped ones.
func (s *selectors) Orphan(orphan *object.Object, enqueue func(parent.Key)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.generate {
		uid, ok := orphan.Label(rollout.LabelControllerUID)
		key, known := s.generated[maphash.String(s.seed, uid)]
		if ok && known && (key.Namespace == "" || key.Namespace == orphan.Namespace()) {
			enqueue(key)
		}
		return
	}
	visit := func(c *compiled) {
		if c.selector.Matches(orphan.LabelSet()) {
			enqueue(c.key)
		}
	}
	if orphan.Namespace() != "" {
		s.postings.Visit(orphan.Namespace(), orphan.AllLabels(), visit)
	}
	s.postings.Visit("", orphan.AllLabels(), visit)
}

func compile(o *object.Object) *compiled {
	e := &compiled{uid: types.UID(strings.Clone(string(o.UID())))}
	raw, _ := o.Field("spec", "selector")
	e.raw = bytes.Clone(raw)
	e.selector, e.err = decodeSelector(e.raw)
	return e
}

// fits reports whether e still is the entry of o.
func (e *compiled) fits(o *object.Object) bool {
	if e.uid != o.UID() {
		return false
	}
	raw, _ := o.Field("spec", "selector")
	return bytes.Equal(raw, e.raw)
}

func decodeSelector(raw []byte) (labels.Selector, error) {
	if len(raw) == 0 {
		return nil, errNoSelector
	}
	var selector metav1.LabelSelector
	if err := utiljson.Unmarshal(raw, &selector); err != nil {
		return nil, fmt.Errorf("decoding .spec.selector: %w", err)
	}
	if len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0 {
		return nil, errNoSelector
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return nil, fmt.Errorf("parsing .spec.selector: %w", err)
	}
	return parsed, nil
}
