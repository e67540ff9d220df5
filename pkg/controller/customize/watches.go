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

package customize

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
)

// watch is the use of the informer of a resource by all parents whose rules name it.
type watch struct {
	resource schema.GroupVersionResource
	uses     int
	// start acquires the informer and subscribes to it. It returns when that is done, whichever sync called it first.
	start func() *watching
}

type watching struct {
	informer *cache.Informer
	release  func()
}

// uses are the watches that a parent's rules need, by resource.
type uses map[schema.GroupVersionResource]*watch

func (u uses) informer(r schema.GroupVersionResource) *cache.Informer { return u[r].start().informer }

// use takes the informers that rules need. A declared child kind may be related too, so an informer may be there already for another
// purpose.
func (z *Customizer) use(rules related.Rules) uses {
	resources := rules.Resources()
	if rules.SelectsNamespaces() {
		resources = append(resources, namespaces)
	}
	u := z.count(resources)
	for _, w := range u {
		w.start()
	}
	return u
}

func (z *Customizer) count(resources []schema.GroupVersionResource) uses {
	z.mu.Lock()
	defer z.mu.Unlock()
	u := uses{}
	for _, r := range resources {
		if u[r] != nil {
			continue
		}
		w, ok := z.watches[r]
		if !ok {
			w = &watch{resource: r}
			w.start = sync.OnceValue(func() *watching { return z.start(w) })
			z.watches[r] = w
		}
		w.uses++
		u[r] = w
	}
	return u
}

func (z *Customizer) start(w *watch) *watching {
	started := &watching{}
	started.informer, started.release = z.config.Informers.Watch(z.config.Cluster.Cache, cache.Query{Resource: w.resource},
		func(e cache.Event) { z.changed(w.resource, e) })
	if w.resource == namespaces {
		z.namespaces.Store(started)
	}
	return started
}

// keep holds the informers of a parent's present rules, nil for none, and gives back those that only its former rules needed.
func (z *Customizer) keep(key parent.Key, present uses) {
	for _, w := range z.unused(key, present) {
		given := w.start()
		z.namespaces.CompareAndSwap(given, nil)
		given.release()
	}
}

// unused returns the watches that no parent uses any more.
func (z *Customizer) unused(key parent.Key, present uses) []*watch {
	z.mu.Lock()
	defer z.mu.Unlock()
	former := z.parents[key]
	delete(z.parents, key)
	if len(present) > 0 {
		z.parents[key] = present
	}
	var unused []*watch
	for r, w := range former {
		if w.uses--; w.uses == 0 {
			delete(z.watches, r)
			unused = append(unused, w)
		}
	}
	return unused
}
