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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/customize"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hookclient"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// preview is what a sync takes note of that does nothing: its phases are those of every sync, and what would write, record or remember
// something comes here. One goroutine uses it.
type preview struct {
	// hooks are quiet, and given are responses that are taken in place of their calls.
	hooks *hookclient.Set
	given map[asked][]byte
	// dryRun has children checked by the API server.
	dryRun bool
	// asks says that the sync ends where the hook would be called: only the requests are wanted, of one hook if only is set.
	asks bool
	only hook.Name

	requests []v1alpha1.HookRequest
	plan     v1alpha1.ParentPlan
	shown    map[inspection.Place]struct{}
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

// Requests implements inspection.Controller.
func (c *Controller) Requests(ctx context.Context, ref v1alpha1.ParentReference, only string) ([]v1alpha1.HookRequest, []inspection.Place, error) {
	p := &preview{asks: true, only: hook.Name(only)}
	if err := c.preview(ctx, ref, p); err != nil {
		return nil, nil, errors.New(message(err))
	}
	return p.requests, p.places(), nil
}

// Plan implements inspection.Controller.
func (c *Controller) Plan(ctx context.Context, ref v1alpha1.ParentReference, o inspection.PlanOptions) (v1alpha1.ParentPlan, []inspection.Place) {
	p := &preview{dryRun: o.DryRun, given: make(map[asked][]byte, len(o.Responses))}
	for i := range o.Responses {
		given := &o.Responses[i]
		p.given[asked{hook.Name(given.Hook), given.Revision}] = given.Body.Raw
	}
	err := c.preview(ctx, ref, p)
	p.plan.ParentReference = ref
	if err != nil {
		p.plan.Error = message(err)
	}
	_, p.plan.Message = c.stateIs(keyOf(ref), true, nil, false)
	return p.plan, p.places()
}

// preview does a sync of a parent that does nothing.
func (c *Controller) preview(ctx context.Context, ref v1alpha1.ParentReference, p *preview) error {
	if c.shared.Access.Held() {
		return errors.New("the controller is held, because its service account may not read what it needs; see its condition Permitted")
	}
	s := c.open(keyOf(ref))
	if s == nil {
		return errors.New("it is no parent of the controller, or not any more")
	}
	s.preview, p.hooks, p.shown = p, c.hooks.Quiet(), map[inspection.Place]struct{}{}
	err := recovery.Call(ctx, "previewing a sync", func() error {
		// What a sync logs is what it does.
		return s.run(klog.NewContext(ctx, klog.Logger{}))
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (p *preview) places() []inspection.Place {
	list := make([]inspection.Place, 0, len(p.shown))
	for at := range p.shown {
		list = append(list, at)
	}
	return list
}

// relate finds the related objects, as relate does.
func (p *preview) relate(ctx context.Context, s *Sync) ([]wire.Group, error) {
	c, called := s.controller, p.hooks.Customize
	if called == nil {
		if p.only == hook.Customize {
			return nil, errors.New("the controller has no customize hook")
		}
		return nil, nil
	}
	if p.asks && (p.only == hook.Customize || p.only == "" && !c.customizer.Remembers(s.Key, s.Parent)) {
		p.record(hook.Customize, "", wire.Customize(*c.encoded.Load(), withoutSecrets(s.Parent)))
	}
	if p.only == hook.Customize {
		return nil, errEnough
	}
	body, given := p.given[asked{hook: hook.Customize}]
	found, err := c.customizer.Look(ctx, s.Key, s.Root, s.Parent, customize.Asking{Hook: called, Given: given,
		Ask: func(ctx context.Context) (*wire.CustomizeResponse, error) {
			if given {
				return called.GivenRelated(body)
			}
			return called.Related(ctx, s.Root, wire.Customize(*c.encoded.Load(), s.Parent))
		},
	})
	groups := make([]wire.Group, len(found))
	for i, g := range found {
		groups[i] = wire.GroupOf(g.Key, g.Objects)
		for _, o := range g.Objects {
			p.shown[inspection.Place{GroupResource: g.Resource.GroupResource(), Namespace: o.Namespace()}] = struct{}{}
		}
	}
	return groups, err
}

func (p *preview) record(name hook.Name, revision string, body []byte) {
	p.requests = append(p.requests, v1alpha1.HookRequest{Hook: string(name), Revision: revision, Body: runtime.RawExtension{Raw: body}})
}

// call is what Call does in a preview.
func (p *preview) call(ctx context.Context, s *Sync, called *hookclient.Hook, x exchange) (*hookclient.Response, error) {
	for _, o := range s.Observed {
		p.shows(s, o)
	}
	if p.asks {
		if p.only == "" || p.only == called.Name {
			p.record(called.Name, x.revision, x.encode(requestWithoutSecrets(x.request)))
		}
		return nil, nil
	}
	if body, ok := p.given[asked{called.Name, x.revision}]; ok {
		return called.Given(s.Root, body, x.decode)
	}
	for given := range p.given {
		if given.hook == called.Name {
			return nil, fmt.Errorf("no response is given to the request of the %s hook about the revision %q", called.Name, x.revision)
		}
	}
	return called.Call(ctx, s.Root, x.encode(x.request), x.decode)
}

// shows takes note of where a child is that is shown.
func (p *preview) shows(s *Sync, o *object.Object) {
	if rule, ok := s.controller.rules.For(o.GroupVersionKind().GroupKind()); ok {
		p.shown[inspection.Place{GroupResource: rule.Resource.GroupResource(), Namespace: o.Namespace()}] = struct{}{}
	}
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
			c.shared.Access.Run(reading, func() {
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
		c.hooks.Close()
		c.expectations.Close()
		c.informers.Close()
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
