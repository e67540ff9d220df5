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
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// Reasons of events about children that stay without their parent, on the parent.
const (
	reasonRetained = "ChildRetained"
	// reasonNotRetained is for children that are being deleted already when their parent is.
	reasonNotRetained = "ChildNotRetained"
)

// retainRetry is after which time a child is looked at again that was changed while its parent was taken off its owners. The event of the
// change mostly comes before.
const retainRetry = time.Second

// retainFirst lets the children of a parent that is deleted go that stay without it, and then the parent, unless there is a finalize hook, which is
// called before. The sync hook decides nothing about such a parent, so that it need not respond.
func (s *Sync) retainFirst(ctx context.Context) error {
	if !s.retains() || s.controller.hooks.Finalize != nil {
		return nil
	}
	if all, err := s.retain(ctx, nil); err != nil || !all || !s.controller.finalizer.On(s.Parent) {
		return err
	}
	err := s.RemoveFinalizer(ctx)
	// Without the finalizer, one that is not selected any more is nobody's to ask a hook about, whatever else holds it.
	if client.IsGone(err) || err == nil && (parent.Ended(s.Parent) || !s.controller.relevant(s.Source, s.Parent)) {
		s.Parent = nil
	}
	return parent.IgnoreGone(err)
}

// retainLast lets the children of a parent that is finalized go that stay without it: those that the finalize hook does not want any more, in place of
// deleting them, and all of them when it is done. Where there is no finalize hook, the finalizer is for these children alone.
func (s *Sync) retainLast(ctx context.Context) error {
	c := s.controller
	if c.config.Definition.Retains && c.hooks.Finalize == nil {
		s.Decision.Finalized = false
	}
	if !s.retains() || c.hooks.Finalize == nil || s.Decision.Settled && !s.Decision.Finalized {
		return nil
	}
	var wanted map[children.Key]bool
	if !s.Decision.Finalized && c.finalizer.On(s.Parent) {
		wanted = make(map[children.Key]bool, len(s.Decision.Desired))
		for i := range s.Decision.Desired {
			wanted[s.Decision.Desired[i].Key] = true
		}
		for _, key := range s.kept() {
			wanted[key] = true // The rolling update has not reached it.
		}
	}
	all, err := s.retain(ctx, wanted)
	if err != nil {
		return err
	}
	if s.Decision.Finalized = s.Decision.Finalized && all; s.Decision.Finalized {
		// Others would be created for an owner that goes.
		s.Decision.Desired = slices.DeleteFunc(slices.Clone(s.Decision.Desired), func(d children.Desired) bool { return c.retainsKind(d.Key) })
	}
	return nil
}

// retains reports whether the parent is being deleted, and may have children that stay without it.
func (s *Sync) retains() bool { return s.controller.config.Definition.Retains && s.Parent.Deleting() }

func (c *Controller) retainsKind(child children.Key) bool {
	rule, _ := c.rules.For(child.GroupKind())
	return rule.Retain
}

// retain takes the parent off the owners of those children that stay without it and are not wanted. They are children no more, and none that has to be
// tried again is deleted meanwhile. It reports whether there is none of these.
func (s *Sync) retain(ctx context.Context, wanted map[children.Key]bool) (all bool, err error) {
	var gone, going []string
	var errs []error
	left, tried := map[children.Key]bool{}, map[children.Key]bool{}
	for _, o := range s.retained() {
		key := children.KeyOf(o)
		switch {
		case wanted[key]:
		case o.Deleting():
			going = append(going, key.String())
		default:
			tried[key] = true
			done, err := s.retainOne(ctx, o)
			if errs = append(errs, err); done {
				left[key] = true
				gone = append(gone, key.String())
			}
		}
	}
	triedOne := func(o *object.Object) bool { return tried[children.KeyOf(o)] }
	s.Observed = slices.DeleteFunc(slices.Clone(s.Observed), triedOne)
	s.Decision.Observed = slices.DeleteFunc(slices.Clone(s.Decision.Observed), triedOne)
	for i := range s.Shown {
		s.Shown[i].Objects = slices.DeleteFunc(s.Shown[i].Objects, func(shown wire.Object) bool {
			o, ok := shown.(*object.Object)
			return ok && left[children.KeyOf(o)]
		})
	}
	s.Remember(func() { s.reportRetained(gone, going) })
	return len(left) == len(tried), errors.Join(errs...)
}

// retained returns the objects that stay without the parent: its children, and those of which the garbage collector has taken it off already.
func (s *Sync) retained() []*object.Object {
	found := map[children.Key]*object.Object{}
	for _, o := range s.Observed {
		if key := children.KeyOf(o); s.controller.retainsKind(key) {
			found[key] = o
		}
	}
	_ = s.Children(func(_ int, rule *children.Rule, informer *cache.Informer) error { // Nothing fails.
		if !s.controller.retainsKind(children.Key{Group: rule.Kind.Group, Kind: rule.Kind.Kind}) {
			return nil
		}
		selector := s.Scope.Selector
		if selector == nil {
			selector = labels.Everything()
		}
		for _, o := range informer.Orphans(s.Key.Namespace, selector) {
			if _, kept := children.KeptBy(o); kept && s.marked(o) {
				found[children.KeyOf(o)] = o
			}
		}
		return nil
	})
	return slices.SortedFunc(maps.Values(found), func(a, b *object.Object) int { return children.KeyOf(a).Compare(children.KeyOf(b)) })
}

// marked reports whether an object has the labels and annotations of the parent's children.
func (s *Sync) marked(o *object.Object) bool {
	for name, value := range s.Scope.Annotations {
		if has, ok := o.Annotation(name); !ok || has != value {
			return false
		}
	}
	return true
}

// retainOne takes the parent off the owners of a child. It reports false if that has to be tried again.
func (s *Sync) retainOne(ctx context.Context, o *object.Object) (done bool, err error) {
	rule, _ := s.controller.rules.For(children.KeyOf(o).GroupKind())
	target := client.Target{Resource: rule.ResourceIn(o.APIVersion()), Namespace: o.Namespace(), Name: o.Name()}
	patch, err := children.RetainPatch(o, s.Parent.UID(), s.Scope.Labels, s.Scope.Annotations)
	if err != nil {
		return false, err
	}
	klog.FromContext(ctx).Info("Keeping child whose parent is deleted", "parent", s.Parent, "child", o)
	_, err = s.Claim(ctx, v1alpha1.ChildRetain, target, o, patch)
	switch {
	case err == nil || client.IsGone(err):
		return true, nil
	case apierrors.IsConflict(err):
		s.claims.again = queue.Earliest(s.claims.again, retainRetry)
		return false, nil
	}
	return false, fmt.Errorf("%s stays without its parent (onParentDeletion: Retain), and the parent could not be taken off its owners: %w%s",
		children.KeyOf(o), err, s.controller.letGo(s.Key, s.Parent))
}

// reportRetained names the children that stay, and those that somebody has deleted already: the garbage collector where the parent was deleted in the
// foreground before the controller had made them ready for that.
func (s *Sync) reportRetained(gone, going []string) {
	if len(gone) > 0 {
		s.normal(nil, reasonRetained, fmt.Sprintf("This object is being deleted. Without it stays, by onParentDeletion: Retain: %s", children.Enumerate(gone)))
	}
	if topic := reasonNotRetained + children.Enumerate(going); len(going) > 0 && s.record.children.report(topic, 1) {
		s.warn(nil, reasonNotRetained, fmt.Sprintf("%s cannot stay without this object, because it is being deleted itself. After a deletion "+
			"with --cascade=foreground the garbage collector did that, if the child was not made by this controller since onParentDeletion was set",
			children.Enumerate(going)))
	}
}

// keepers adds to an input the namespaces that have to own children which stay without the parent, as far as these do not show it.
func (c *Controller) keepers(ctx context.Context, in plan.Input) plan.Input {
	if !c.config.Definition.Retains {
		return in
	}
	for _, name := range plan.UnknownKeepers(in) {
		o, err := c.shared.Cluster.Client.Get(ctx, client.Target{Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Name: name})
		keeper := plan.Keeper{Err: err}
		if err == nil {
			keeper.UID = o.UID()
		}
		in.Keepers = with(in.Keepers, name, keeper)
	}
	return in
}
