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

package related

import (
	"context"
	"errors"
	"fmt"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hookclient"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// Asking is how Look gets the response of the customize hook.
type Asking struct {
	// Hook is a quiet one, by which the rules are read.
	Hook *hookclient.Hook
	// Ask calls the hook, or gives a response in place of it.
	Ask func(ctx context.Context) (*wire.CustomizeResponse, error)
	// Given says that Ask counts even where a response is remembered.
	Given bool
	// Permit is asked before objects are looked for by what Ask returned. Its error is that of Look. Nil: all is permitted.
	Permit func(ctx context.Context, reaches []Reach) error
}

// Look returns the related objects of a parent as [Customizer.Related] does, and remembers nothing of it: neither the response, nor that
// the parent is related to objects. It waits for caches that are not filled until ctx ends.
func (z *Customizer) Look(ctx context.Context, a Asked, by Asking) ([]Group[*object.Object], error) {
	if z.config.Hook == nil {
		return nil, nil
	}
	rules, ok := z.responses.Get(a.Key, a.Controller, a.Parent)
	if !ok || by.Given {
		response, err := by.Ask(ctx)
		if err != nil {
			return nil, err
		}
		if rules, err = z.compile(ctx, by.Hook, a, response); err != nil {
			return nil, err
		}
		if by.Permit != nil {
			if err := by.Permit(ctx, rules.Reaches()); err != nil {
				return nil, err
			}
		}
	}
	if err := z.config.Access.Permits(ctx, groups(rules)); err != nil {
		return nil, by.Hook.Failed(err)
	}
	used := z.use(rules)
	defer z.unuse(used)
	groups, err := Select(rules, used.informers(rules))
	if missing, ok := errors.AsType[*NotSyncedError](err); ok {
		if !z.await(ctx, missing, used) {
			return nil, fmt.Errorf("%w: %w", missing, context.Cause(ctx))
		}
		groups, err = Select(rules, used.informers(rules))
	}
	return groups, err
}

// Remembers reports whether a sync of a parent would not call the hook, because its response is remembered.
func (z *Customizer) Remembers(key parent.Key, controller []byte, parent *object.Object) bool {
	_, ok := z.responses.Get(key, controller, parent)
	return ok
}

// await waits until the caches are filled. It reports whether they are.
func (z *Customizer) await(ctx context.Context, missing *NotSyncedError, used uses) bool {
	for _, r := range missing.Resources {
		select {
		case <-used.informer(r).Synced():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// unuse gives back what use took.
func (z *Customizer) unuse(u uses) {
	z.giveBack(func() []*watch {
		z.mu.Lock()
		defer z.mu.Unlock()
		return z.drop(u)
	}())
}
