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

package reconciler_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

func TestCountingChildrenDoesNotCostTheObjectsOfOthers(t *testing.T) {
	const own = 10
	for _, others := range []int{0, 1000} {
		s := newScene(t)
		var looked atomic.Int64
		k := &kind{owns: func(*object.Object) bool {
			looked.Add(1)
			return true
		}}
		s.exist(thing(t, "p", 1, "", ""))
		c := s.start(k, nil)
		for i := range own {
			s.update(s.widgets, widget(t, fmt.Sprint("own-", i), 10+i, "p", ""))
		}
		for i := range others {
			s.update(s.widgets, widget(t, fmt.Sprint("other-", i), 100+i, "q", ""))
		}
		looked.Store(0)
		if n := c.CountChildren(); n != own {
			t.Errorf("%d children, want %d", n, own)
		}
		if n := looked.Load(); n > 2*own {
			t.Errorf("%d children beside %d objects of others: looked %d times at one", own, others, n)
		}
	}
}
