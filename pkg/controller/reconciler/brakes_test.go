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
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// defined returns the definition of a scene's controller, paused or not.
func defined(paused bool) reconciler.Definition {
	return reconciler.OfComposite(&v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: v1alpha1.CompositeControllerSpec{Paused: &paused, Hooks: &v1alpha1.CompositeControllerHooks{
			Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:1/sync")}},
		}},
	})
}

// tally counts the syncs of each version of each parent.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (s *tally) observe(sync *reconciler.Sync) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	s.seen[sync.Parent.Name()+"@"+sync.Parent.ResourceVersion()]++
	return nil
}

func (s *tally) all() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.seen {
		n += times
	}
	return n
}

func (s *tally) of(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[name]
}

func TestNothingIsSyncedDuringAPauseAndAllAfterIt(t *testing.T) {
	s := newScene(t)
	s.exist(thing(t, "a", 1, "", ""), thing(t, "b", 1, "", ""))
	var seen tally
	c := s.start(&kind{observe: seen.observe}, func(config *reconciler.Config) { config.Definition = defined(true) })
	s.update(s.things, thing(t, "a", 2, "", ""))
	s.eventually("both parents to wait", func() bool { return c.Counters().Pending == 2 })
	health := c.Health()
	if !health.Paused || health.UnderWay != 0 || !health.Started || seen.all() != 0 {
		t.Errorf("%d syncs during the pause; health %+v", seen.all(), health)
	}
	resume := func() {
		t.Helper()
		if err := c.Redefine(t.Context(), defined(false)); err != nil {
			t.Fatal(err)
		}
	}
	resume()
	s.eventually("both parents to be synced as they are now", func() bool { return seen.of("a@2") == 1 && seen.of("b@1") == 1 })
	s.eventually("nothing to wait", func() bool { return c.Counters().Pending == 0 })
	if err := c.Redefine(t.Context(), defined(true)); err != nil {
		t.Fatal(err)
	}
	s.update(s.things, thing(t, "a", 3, "", ""))
	s.update(s.things, thing(t, "c", 4, "", ""))
	s.update(s.widgets, widget(t, "w", 5, "a", ""))
	s.eventually("the parents to wait", func() bool { return c.Counters().Pending == 2 })
	before := seen.all()
	resume()
	// What did not change is synced again, too: nobody knows what a pause cut short.
	s.eventually("all to be synced", func() bool { return seen.of("a@3") == 1 && seen.of("b@1") == 2 && seen.of("c@4") == 1 })
	if seen.all() != before+3 || c.Health().Paused {
		t.Errorf("%d syncs after the pause, want 3", seen.all()-before)
	}
}
