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
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// noting is the writer of a sync that does nothing and notes what it would do. One goroutine uses it.
type noting struct {
	s *Sync
	// given are responses that are taken in place of calls of hooks.
	given map[asked][]byte
	// permitsRelated, unless it is nil, is asked before objects are looked for that a given response selects.
	permitsRelated func(ctx context.Context, selected []inspection.Place) error
	// dryRun has children checked by the API server.
	dryRun bool
	// asks says that the sync ends where the hook would be called: only the requests are wanted, of one hook if only is set.
	asks bool
	only hook.Name
	// permit, unless it is nil, says that the hooks are called for their responses, each if it returns nil for what is shown.
	permit func(shown []inspection.Place) error

	// plan is what would be written, and requests are those that hooks would be sent.
	plan     v1alpha1.ParentPlan
	requests []v1alpha1.HookRequest
	// shown are the places of objects that people see, and size is that of the bodies of requests.
	shown map[inspection.Place]struct{}
	size  int
}

// asked is a call of a hook about one parent.
type asked struct {
	hook     hook.Name
	revision string
}

// Requests implements inspection.Controller.
func (c *Controller) Requests(
	ctx context.Context, ref v1alpha1.ParentReference, o inspection.RequestOptions,
) ([]v1alpha1.HookRequest, []inspection.Place, error) {
	n := &noting{asks: true, only: hook.Name(o.Hook), permit: o.Call}
	switch err := c.preview(ctx, ref, n); {
	case errors.Is(err, inspection.ErrTooLarge):
		return nil, nil, err
	case err != nil:
		return nil, nil, errors.New(message(err))
	}
	return n.requests, n.places(), nil
}

// Plan implements inspection.Controller.
func (c *Controller) Plan(ctx context.Context, ref v1alpha1.ParentReference, o inspection.PlanOptions) (v1alpha1.ParentPlan, []inspection.Place) {
	n := &noting{dryRun: o.DryRun, permitsRelated: o.Relate, given: make(map[asked][]byte, len(o.Responses))}
	for i := range o.Responses {
		given := &o.Responses[i]
		n.given[asked{hook.Name(given.Hook), given.Revision}] = given.Body.Raw
	}
	err := c.preview(ctx, ref, n)
	n.plan.ParentReference = ref
	if err != nil {
		n.plan.Error = message(err)
	}
	_, n.plan.Message = c.stateIs(c.parents.ofSync(keyOf(ref)), true, nil, false)
	return n.plan, n.places()
}

// preview does a sync of a parent that does nothing.
func (c *Controller) preview(ctx context.Context, ref v1alpha1.ParentReference, n *noting) error {
	if c.shared.Access.Held() {
		return errors.New("the controller is held, because its service account may not read what it needs; see its condition Permitted")
	}
	s := c.open(keyOf(ref), turn{})
	if s == nil {
		return errors.New("it is no parent of the controller, or not any more")
	}
	s.Writer, s.hooks, n.s = n, c.hooks.Quiet(), s
	err := recovery.Call(ctx, "previewing a sync", func() error {
		// What a sync logs is what it does, and of what it writes it is known whether it may.
		return s.run(klog.NewContext(client.Unobserved(ctx), klog.Logger{}))
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// Remember implements Writer.
func (*noting) Remember(func()) {}

func (n *noting) relate(ctx context.Context) ([]wire.Group, error) {
	s, c, called, asks := n.s, n.s.controller, n.s.hooks.Customize, n.s.asks()
	if called == nil {
		if n.only == hook.Customize {
			return nil, errors.New("the controller has no customize hook")
		}
		return nil, nil
	}
	if n.asks && (n.only == hook.Customize || n.only == "" && !c.customizer.Remembers(asks)) {
		response, err := n.response(ctx, called, wire.Customize(asks.Controller, s.Parent), CustomizeResponse)
		if err != nil {
			return nil, err
		}
		if err := n.request(called.Name, "", wire.Customize(asks.Controller, withoutSecrets(s.Parent)), response); err != nil {
			return nil, err
		}
	}
	if n.only == hook.Customize {
		return nil, errEnough
	}
	body, given := n.given[asked{hook: hook.Customize}]
	if given && !n.gives(hook.Sync) && !n.gives(hook.Finalize) {
		// Else a caller would decide which objects of the cluster the hook is sent.
		return nil, errors.New("a response of the customize hook is taken only together with those of the sync or finalize hook")
	}
	confined := s.confined()
	asking := related.Asking{
		Hook: called, Given: given, Confined: confined,
		Ask: func(ctx context.Context) (*wire.CustomizeResponse, error) {
			if given {
				return called.GivenRelated(body)
			}
			return called.Related(ctx, s.Root, wire.Customize(asks.Controller, s.Parent))
		},
	}
	if given {
		asking.Permit = n.permitsRelated
	}
	found, err := c.customizer.Look(ctx, asks, asking)
	groups := make([]wire.Group, len(found))
	for i, g := range found {
		groups[i] = wire.GroupOf(g.Key, g.Objects)
		for _, o := range g.Objects {
			if confined == "" || o.Namespace() == confined {
				n.show(g.Resource.GroupResource(), o)
			}
		}
	}
	return groups, err
}

// confined returns the only namespace of which hooks are shown related objects, empty if it is not the only one: in version v1 a parent sees
// its own (docs/reference/contract.md#s9).
func (s *Sync) confined() string {
	for _, h := range []*hooks.Hook{s.hooks.Sync, s.hooks.Finalize} {
		if h != nil && h.Version == v1alpha1.HookVersionV2 {
			return ""
		}
	}
	return s.Parent.Namespace()
}

func (n *noting) call(ctx context.Context, x exchange) (*hooks.Response, error) {
	s := n.s
	for _, o := range s.Observed {
		if rule, ok := s.controller.rules.For(o.GroupVersionKind().GroupKind()); ok {
			n.show(rule.Resource.GroupResource(), o)
		}
	}
	if n.asks {
		if n.only != "" && n.only != x.called.Name {
			return nil, nil
		}
		response, err := n.response(ctx, x.called, x.encode(x.request), responseShown(x.decode))
		if err != nil {
			return nil, err
		}
		return nil, n.request(x.called.Name, x.revision, x.encode(requestWithoutSecrets(x.request)), response)
	}
	if body, ok := n.given[asked{x.called.Name, x.revision}]; ok {
		// Whoever gives it was shown the request without values of Secrets.
		return x.called.Given(s.Root, body, revealed(x.decode, s.Parent.Namespace(), s.Observed))
	}
	if n.gives(hook.Sync) || n.gives(hook.Finalize) {
		return nil, fmt.Errorf("responses are given, and none to the request of the %s hook with the revision %q", x.called.Name, x.revision)
	}
	return x.called.Call(ctx, s.Root, x.encode(x.request), x.decode)
}

// response returns what people may see of the response to a request, nil if it is not wanted.
func (n *noting) response(
	ctx context.Context, called *hooks.Hook, body []byte, read func([]byte, wire.ResponseOptions) ([]byte, error),
) ([]byte, error) {
	if n.permit == nil {
		return nil, nil
	}
	if err := n.permit(n.places()); err != nil {
		return nil, err
	}
	return called.Shown(ctx, body, read)
}

// gives reports whether a response of a hook is given.
func (n *noting) gives(name hook.Name) bool {
	for given := range n.given {
		if given.hook == name {
			return true
		}
	}
	return false
}

func (n *noting) ensureFinalizer(context.Context) error {
	s := n.s
	wanted, changes := s.controller.finalizer.Wanted(s.Parent)
	if !changes {
		return nil
	}
	edited, err := n.finalizers(s.Parent, wanted)
	if err != nil {
		return err
	}
	if s.Parent = edited; !s.controller.relevant(s.Source, edited) {
		s.Parent = nil
	}
	return nil
}

// RemoveFinalizer implements Writer. What follows is decided by the parent without the finalizer.
func (n *noting) RemoveFinalizer(context.Context) error {
	s, f := n.s, n.s.controller.finalizer
	if !f.On(s.Parent) {
		return nil
	}
	edited, err := n.finalizers(s.Parent, f.Without(s.Parent))
	if err == nil {
		s.Parent = edited
	}
	return err
}

// WriteParent implements Writer.
func (n *noting) WriteParent(_ context.Context, changes parent.Changes) error {
	if n.s.controller.pointless(n.s.record, changes.Status, n.s.stored) {
		changes.Status = nil
	}
	return n.change(n.s.Parent, changes)
}

// DeleteParent implements Writer.
func (n *noting) DeleteParent(context.Context) error {
	n.plan.Delete = true
	return nil
}

// WriteRevision implements Writer.
func (n *noting) WriteRevision(operation, name string, _ func() error) error {
	n.plan.Revisions = append(n.plan.Revisions, v1alpha1.RevisionPlan{Action: operation, Name: name})
	return nil
}

// Open fills the caches of a controller that does not run, so that it can be asked what it would do. It waits until ctx ends. Close ends
// the use of the caches; a controller that was opened is never run.
func (c *Controller) Open(ctx context.Context) (shut func(), err error) {
	c.acquire()
	reading, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	permitted := newSignal()
	if c.shared.Access != nil {
		running.Go(func() { c.shared.Cluster.Credentials.Run(reading) })
		running.Go(func() { c.shared.Access.Run(reading, c.customizer.Resources, func(bool) { permitted.raise() }) })
	}
	shut = func() {
		end()
		running.Wait()
		c.shut()
	}
	if !c.informers.Await(ctx) {
		shut()
		return nil, fmt.Errorf("filling the caches of the candidate: %w", context.Cause(ctx))
	}
	if c.shared.Access.Held() {
		select {
		case <-permitted:
		case <-time.After(reviewLimit): // Its plans say that it is held.
		case <-ctx.Done():
		}
	}
	close(c.started)
	return shut, nil
}

// reviewLimit is how long a candidate waits for the review of its service account.
const reviewLimit = 5 * time.Second
