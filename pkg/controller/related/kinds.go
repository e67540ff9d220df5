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
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// KindsChanged compares the kinds that rules name with those that the cluster serves now. It drops the responses that name one that is not
// served any more, or in another way, and returns their parents, whose hook is to be asked again. Informers of resources that are not
// served any more are given back. It may wait for the API server.
//
// A sync that is under way may remember what it read before. Discovery notifies several times after a change, and the next call finds that.
func (z *Customizer) KindsChanged(ctx context.Context) []parent.Key {
	outdated := map[Type]struct{}{}
	for _, t := range z.responses.Types() {
		if served, err := z.resolve(ctx, t.Resource.GroupVersion().String(), t.Resource.Resource); unserved(err) && !t.Gone || err == nil && served != t {
			outdated[t] = struct{}{}
		}
	}
	gone := map[schema.GroupVersionResource]struct{}{}
	for _, r := range z.watched() {
		if _, err := z.resolve(ctx, r.GroupVersion().String(), r.Resource); unserved(err) {
			gone[r] = struct{}{}
		}
	}
	// The responses go first: a sync that begins after this asks the hook.
	dropped := z.responses.Drop(outdated)
	z.giveBack(z.abandoned(gone))
	return dropped
}

// errNotListed says that a rule names what is only written, such as the bindings of Pods.
var errNotListed = errors.New("its objects cannot be listed; name another resource")

// resolve finds the type that a rule names.
func (z *Customizer) resolve(ctx context.Context, apiVersion, resource string) (Type, error) {
	r, err := z.config.Cluster.Discovery.Resource(ctx, apiVersion, resource)
	if err == nil && len(r.Verbs) > 0 && !slices.Contains(r.Verbs, rights.List) {
		err = errNotListed // An informer of them would never be filled.
	}
	return Type{Resource: r.GroupVersionResource, Kind: r.Kind, Namespaced: r.Namespaced}, err
}

// resolveOrGone finds the type that a rule names, or that it is gone: an API server that serves it in another version has objects of it.
func (z *Customizer) resolveOrGone(ctx context.Context, apiVersion, resource string) (Type, error) {
	found, err := z.resolve(ctx, apiVersion, resource)
	if !unserved(err) {
		return found, err
	}
	version, _ := schema.ParseGroupVersion(apiVersion) // It was asked for.
	gone := version.WithResource(resource)
	switch served, elsewhere := z.config.Cluster.Discovery.Serving(ctx, gone.GroupResource()); {
	case elsewhere == nil:
		return found, fmt.Errorf("%w; it is served as %s, which the customize hook has to name", err, served.APIVersion())
	case !unserved(elsewhere):
		return found, elsewhere
	}
	found, _ = z.index.Type(gone)
	found.Resource, found.Gone = gone, true
	return found, nil
}

// unserved reports whether an error says that a kind is not served. Others say nothing about it.
func unserved(err error) bool {
	_, ok := errors.AsType[*discovery.NotFoundError](err)
	return ok
}

// watched returns the resources whose informers are in use.
func (z *Customizer) watched() []schema.GroupVersionResource {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Collect(maps.Keys(z.watches))
}

// abandoned ends what parents use of resources, and returns the watches that nothing uses any more.
func (z *Customizer) abandoned(gone map[schema.GroupVersionResource]struct{}) (unused []*watch) {
	if len(gone) == 0 {
		return nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	for key, used := range z.parents {
		// A sync that waits for informers reads the uses: they are replaced, not changed.
		kept, ended := uses{}, uses{}
		for r, w := range used {
			if _, is := gone[r]; is {
				ended[r] = w
			} else {
				kept[r] = w
			}
		}
		if len(ended) == 0 {
			continue
		}
		if z.parents[key] = kept; len(kept) == 0 {
			delete(z.parents, key)
		}
		unused = append(unused, z.drop(ended)...)
	}
	return unused
}
