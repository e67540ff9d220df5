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
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/preview"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// previewing is what a sync takes note of that does nothing: its phases are those of every sync, and what would write, record or remember
// something comes here. One goroutine uses it.
type previewing struct {
	// hooks are quiet, and given are responses that are taken in place of their calls.
	hooks *hooks.Set
	given map[asked][]byte
	// related, unless it is nil, is asked before objects are looked for that a given response selects.
	related func(ctx context.Context, selected []inspection.Place) error
	// dryRun has children checked by the API server.
	dryRun bool
	// asks says that the sync ends where the hook would be called: only the requests are wanted, of one hook if only is set.
	asks bool
	only hook.Name
	// permit, unless it is nil, says that the hooks are called for their responses, each if it returns nil for what is shown.
	permit func(shown []inspection.Place) error

	notes preview.Notes
}

// asked is a call of a hook about one parent.
type asked struct {
	hook     hook.Name
	revision string
}

// exchange is a call of the sync or finalize hook.
type exchange struct {
	revision string
	request  wire.Request
	encode   func(wire.Request) []byte
	decode   func([]byte, wire.ResponseOptions) (wire.Response, error)
}

// errEnough ends a sync of which nothing more is wanted.
var errEnough = errors.New("nothing more was asked for")

// OnlyAsks reports whether nothing but the requests of the hook is wanted of the sync: Call returns no response then.
func (s *Sync) OnlyAsks() bool { return s.preview != nil && s.preview.asks }

// Remembers reports whether what the sync finds out may be remembered for those that follow: it may not in a preview.
func (s *Sync) Remembers() bool { return s.preview == nil }

// Requests implements inspection.Controller.
func (c *Controller) Requests(
	ctx context.Context, ref v1alpha1.ParentReference, o inspection.RequestOptions,
) ([]v1alpha1.HookRequest, []inspection.Place, error) {
	p := &previewing{asks: true, only: hook.Name(o.Hook), permit: o.Call}
	switch err := c.preview(ctx, ref, p); {
	case errors.Is(err, inspection.ErrTooLarge):
		return nil, nil, err
	case err != nil:
		return nil, nil, errors.New(message(err))
	}
	return p.notes.Requests, p.notes.Places(), nil
}

// Plan implements inspection.Controller.
func (c *Controller) Plan(ctx context.Context, ref v1alpha1.ParentReference, o inspection.PlanOptions) (v1alpha1.ParentPlan, []inspection.Place) {
	p := &previewing{dryRun: o.DryRun, related: o.Relate, given: make(map[asked][]byte, len(o.Responses))}
	for i := range o.Responses {
		given := &o.Responses[i]
		p.given[asked{hook.Name(given.Hook), given.Revision}] = given.Body.Raw
	}
	err := c.preview(ctx, ref, p)
	p.notes.Plan.ParentReference = ref
	if err != nil {
		p.notes.Plan.Error = message(err)
	}
	_, p.notes.Plan.Message = c.stateIs(c.parents.ofSync(keyOf(ref)), true, nil, false)
	return p.notes.Plan, p.notes.Places()
}

// preview does a sync of a parent that does nothing.
func (c *Controller) preview(ctx context.Context, ref v1alpha1.ParentReference, p *previewing) error {
	if c.shared.Access.Held() {
		return errors.New("the controller is held, because its service account may not read what it needs; see its condition Permitted")
	}
	s := c.open(keyOf(ref), turn{})
	if s == nil {
		return errors.New("it is no parent of the controller, or not any more")
	}
	s.preview, p.hooks = p, c.hooks.Quiet()
	err := recovery.Call(ctx, "previewing a sync", func() error {
		// What a sync logs is what it does, and of what it writes it is known whether it may.
		return s.run(klog.NewContext(client.Unobserved(ctx), klog.Logger{}))
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// relate finds the related objects, as relate does.
func (p *previewing) relate(ctx context.Context, s *Sync) ([]wire.Group, error) {
	c, called := s.controller, p.hooks.Customize
	if called == nil {
		if p.only == hook.Customize {
			return nil, errors.New("the controller has no customize hook")
		}
		return nil, nil
	}
	encoded := *c.encoded.Load()
	if p.asks && (p.only == hook.Customize || p.only == "" && !c.customizer.Remembers(s.asked(encoded))) {
		response, err := p.response(ctx, called, wire.Customize(encoded, s.Parent), preview.CustomizeResponse)
		if err != nil {
			return nil, err
		}
		if err := p.notes.Request(called.Name, "", wire.Customize(encoded, preview.WithoutSecrets(s.Parent)), response); err != nil {
			return nil, err
		}
	}
	if p.only == hook.Customize {
		return nil, errEnough
	}
	body, given := p.given[asked{hook: hook.Customize}]
	if given && !p.gives(hook.Sync) && !p.gives(hook.Finalize) {
		// Else a caller would decide which objects of the cluster the hook is sent.
		return nil, errors.New("a response of the customize hook is taken only together with those of the sync or finalize hook")
	}
	confined := p.confined(s.Parent)
	asking := related.Asking{
		Hook: called, Given: given, Confined: confined,
		Ask: func(ctx context.Context) (*wire.CustomizeResponse, error) {
			if given {
				return called.GivenRelated(body)
			}
			return called.Related(ctx, s.Root, wire.Customize(encoded, s.Parent))
		},
	}
	if given {
		asking.Permit = p.related
	}
	found, err := c.customizer.Look(ctx, s.asked(encoded), asking)
	groups := make([]wire.Group, len(found))
	for i, g := range found {
		groups[i] = wire.GroupOf(g.Key, g.Objects)
		for _, o := range g.Objects {
			if confined == "" || o.Namespace() == confined {
				p.notes.Show(g.Resource.GroupResource(), o)
			}
		}
	}
	return groups, err
}

// confined returns the only namespace of which hooks are shown related objects, empty if it is not the only one: in version v1 a parent sees
// its own (docs/reference/contract.md#s9).
func (p *previewing) confined(parent *object.Object) string {
	for _, h := range []*hooks.Hook{p.hooks.Sync, p.hooks.Finalize} {
		if h != nil && h.Version == v1alpha1.HookVersionV2 {
			return ""
		}
	}
	return parent.Namespace()
}

// call is what Call does in a preview.
func (p *previewing) call(ctx context.Context, s *Sync, called *hooks.Hook, x exchange) (*hooks.Response, error) {
	for _, o := range s.Observed {
		if rule, ok := s.controller.rules.For(o.GroupVersionKind().GroupKind()); ok {
			p.notes.Show(rule.Resource.GroupResource(), o)
		}
	}
	if p.asks {
		if p.only == "" || p.only == called.Name {
			response, err := p.response(ctx, called, x.encode(x.request), preview.Response(x.decode))
			if err != nil {
				return nil, err
			}
			return nil, p.notes.Request(called.Name, x.revision, x.encode(preview.RequestWithoutSecrets(x.request)), response)
		}
		return nil, nil
	}
	if body, ok := p.given[asked{called.Name, x.revision}]; ok {
		// Whoever gives it was shown the request without values of Secrets.
		return called.Given(s.Root, body, preview.Revealed(x.decode, s.Parent.Namespace(), s.Observed))
	}
	if p.gives(hook.Sync) || p.gives(hook.Finalize) {
		return nil, fmt.Errorf("responses are given, and none to the request of the %s hook with the revision %q", called.Name, x.revision)
	}
	return called.Call(ctx, s.Root, x.encode(x.request), x.decode)
}

// response returns what people may see of the response to a request, nil if it is not wanted.
func (p *previewing) response(
	ctx context.Context, called *hooks.Hook, body []byte, read func([]byte, wire.ResponseOptions) ([]byte, error),
) ([]byte, error) {
	if p.permit == nil {
		return nil, nil
	}
	if err := p.permit(p.notes.Places()); err != nil {
		return nil, err
	}
	return called.Shown(ctx, body, read)
}

// gives reports whether a response of a hook is given.
func (p *previewing) gives(name hook.Name) bool {
	for given := range p.given {
		if given.hook == name {
			return true
		}
	}
	return false
}

// ensureFinalizer is what the phase of that name does in a preview.
func (p *previewing) ensureFinalizer(s *Sync) error {
	wanted, changes := s.controller.finalizer.Wanted(s.Parent)
	if !changes {
		return nil
	}
	edited, err := p.notes.Finalizers(s.Parent, wanted)
	if err != nil {
		return err
	}
	if s.Parent = edited; !s.controller.relevant(s.Source, edited) {
		s.Parent = nil
	}
	return nil
}

// removeFinalizer is what RemoveFinalizer does in a preview. What follows is decided by the parent without the finalizer.
func (p *previewing) removeFinalizer(s *Sync) error {
	f := s.controller.finalizer
	if !f.On(s.Parent) {
		return nil
	}
	edited, err := p.notes.Finalizers(s.Parent, f.Without(s.Parent))
	if err == nil {
		s.Parent = edited
	}
	return err
}

// children takes note of what would be done with the children. The error is that of the sync.
func (p *previewing) children(ctx context.Context, s *Sync, in plan.Input) error {
	c := s.controller
	made, held, err := c.children.Plan(in)
	s.deletedChildren = err == nil && !held && !slices.ContainsFunc(made.Steps, func(step plan.Step) bool {
		return step.Action == plan.Recreate || step.HoldsDeletion()
	})
	v := preview.Verdicts{
		Observed: s.Observed, Rules: c.rules, Err: err, Held: held, Text: message,
		Conflict: func(child children.Key) error { return c.children.Conflict(s.Key, s.Parent, child) },
	}
	if p.dryRun {
		v.Refused, v.Untried = c.shared.Applier.Check(ctx, made)
	}
	return p.notes.Children(made, &v)
}

// WouldWriteRevision takes note of a write of a ControllerRevision, and reports whether it must not be made.
func (s *Sync) WouldWriteRevision(operation, name string) bool {
	if s.preview == nil {
		return false
	}
	s.preview.notes.Revision(operation, name)
	return true
}

// Open fills the caches of a controller that does not run, so that it can be asked what it would do. It waits until ctx ends. Close ends
// the use of the caches; a controller that was opened is never run.
func (c *Controller) Open(ctx context.Context) (shut func(), err error) {
	c.acquire()
	reading, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	permitted := make(chan struct{}, 1)
	if c.shared.Access != nil {
		running.Go(func() { c.shared.Cluster.Credentials.Run(reading) })
		running.Go(func() {
			c.shared.Access.Run(reading, c.customizer.Resources, func(bool) {
				select {
				case permitted <- struct{}{}:
				default:
				}
			})
		})
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
