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

package manager

import (
	"context"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// TestControllerObjectsThatComeAfterTheEnd has an informer deliver an object when the manager waits for what runs: nothing may be added to
// that any more.
func TestControllerObjectsThatComeAfterTheEnd(t *testing.T) {
	s := newStore(t)
	c := (&server{store: s, name: "server"}).supervised()
	ctx, end := context.WithCancel(t.Context())
	end()
	c.wait()
	c.put(ctx, reconciler.OfComposite(s.object))
	if len(c.all) > 0 {
		t.Errorf("%d controllers run after the end", len(c.all))
	}
}
