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
	"slices"
	"sync"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// Handlers tells which controllers of this process handle an object as their parent. It is safe for concurrent use; the zero value is
// ready, and nil knows none.
type Handlers struct {
	mu   sync.Mutex
	list []*handler
}

type handler struct {
	name    string
	handles func(parent.Key) bool
}

// Add adds a running controller under its name, as in "CompositeController name", until remove is called. handles must not block.
func (h *Handlers) Add(name string, handles func(parent.Key) bool) (remove func()) {
	if h == nil {
		return func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	added := &handler{name, handles}
	h.list = append(h.list, added)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.list = slices.DeleteFunc(h.list, func(each *handler) bool { return each == added })
	}
}

// Of returns the names of the controllers that handle an object, but for one.
func (h *Handlers) Of(key parent.Key, except string) []string {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	list := slices.Clone(h.list)
	h.mu.Unlock()
	var names []string
	for _, each := range list {
		if each.name != except && each.handles(key) {
			names = append(names, each.name)
		}
	}
	slices.Sort(names)
	return names
}
