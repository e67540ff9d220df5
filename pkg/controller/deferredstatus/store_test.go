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

package deferredstatus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

func keyOf(name string) parent.Key {
	return parent.NewKey(schema.GroupResource{Group: "example.com", Resource: "things"}, "", name)
}

func thing(t *testing.T, uid string, version int, rest string) *object.Object {
	t.Helper()
	o, err := object.Parse(fmt.Appendf(nil, `{"kind":"Thing","metadata":{"name":"a","uid":%q,"resourceVersion":"%d"}%s}`, uid, version, rest), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func status(n int) map[string]any { return map[string]any{"n": int64(n)} }

// statusOf returns the number in a status; -1 if there is none.
func statusOf(t *testing.T, o *object.Object) int {
	t.Helper()
	raw, ok := o.Field("status")
	if !ok {
		return -1
	}
	var content struct {
		N int `json:"n"`
	}
	if err := json.Unmarshal(raw, &content); err != nil {
		t.Fatal(err)
	}
	return content.N
}

// mustDefer defers a status and reports whether it was.
func mustDefer(t *testing.T, s *Store, name string, on *object.Object, n int) bool {
	t.Helper()
	over, err := s.Defer(keyOf(name), on, status(n))
	if err != nil {
		t.Fatal(err)
	}
	if over != nil && (statusOf(t, over) != n || over.ResourceVersion() != on.ResourceVersion() || over.UID() != on.UID()) {
		t.Errorf("the parent is shown as %s", over.JSON())
	}
	return over != nil
}

func TestAStatusIsDeferredForTheLimitAfterTheFirstOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, on := New(nil), thing(t, "u", 1, "")
		for n := range 5 {
			if !mustDefer(t, s, "a", on, n) {
				t.Errorf("status %d is not deferred", n)
			}
			if left, ok := s.Left(keyOf("a")); !ok || left != Limit-time.Duration(n)*Limit/5 {
				t.Errorf("status %d has %v left, %v", n, left, ok)
			}
			<-time.After(Limit / 5)
		}
		if mustDefer(t, s, "a", on, 5) {
			t.Error("a status is deferred after the limit")
		}
		if kept, ok := s.Get(keyOf("a")); !ok || kept.Content["n"] != int64(4) {
			t.Errorf("status %v is kept until another one is written", kept.Content)
		}
		s.Drop(keyOf("a"))
		if !mustDefer(t, s, "a", on, 6) {
			t.Error("the limit goes on after the status was written")
		}
	})
}

func TestAStatusIsNotDeferred(t *testing.T) {
	on := thing(t, "u", 1, "")
	for name, before := range map[string]func(*Store){
		"AfterOneThatCouldNotBeWritten": func(s *Store) { mustDefer(t, s, "a", on, 1); s.Failed(keyOf("a")) },
		"WhenTheControllerStops":        func(s *Store) { s.Close() },
		"AfterHurry":                    func(s *Store) { mustDefer(t, s, "a", on, 1); s.Hurry(keyOf("a")) },
		"AfterHurryOfAll":               func(s *Store) { mustDefer(t, s, "a", on, 1); s.HurryAll() },
	} {
		t.Run(name, func(t *testing.T) {
			s := New(nil)
			before(s)
			if mustDefer(t, s, "a", on, 2) {
				t.Error("it is deferred")
			}
			s.Drop(keyOf("a")) // It was written.
			if mustDefer(t, s, "a", on, 3) != (name != "WhenTheControllerStops") {
				t.Error("whether the next one is deferred is wrong")
			}
		})
	}
}

func TestARecreatedParentHasNothingDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		mustDefer(t, s, "a", thing(t, "old", 1, ""), 1)
		<-time.After(Limit / 2)
		kept, _ := s.Get(keyOf("a"))
		if kept.Applies(thing(t, "new", 2, "")) {
			t.Error("the status of an object applies to the one that came after it")
		}
		mustDefer(t, s, "a", thing(t, "new", 2, ""), 2)
		if left, _ := s.Left(keyOf("a")); left != Limit {
			t.Errorf("%v are left of the new object's time", left)
		}
	})
}

func TestAStatusOfAnotherClientIsNotOverwritten(t *testing.T) {
	s, on := New(nil), thing(t, "u", 5, `,"status":{"n":1}`)
	mustDefer(t, s, "a", on, 2)
	kept, _ := s.Get(keyOf("a"))
	for name, tc := range map[string]struct {
		now     *object.Object
		applies bool
	}{
		"the same":       {on, true},
		"other labels":   {thing(t, "u", 7, `,"status":{"n":1}`), true},
		"another status": {thing(t, "u", 7, `,"status":{"n":3}`), false},
		"no status":      {thing(t, "u", 7, ""), false},
	} {
		if kept.Applies(tc.now) != tc.applies {
			t.Errorf("%s: applies is %v", name, !tc.applies)
		}
	}
	if got := kept.Latest(thing(t, "u", 4, "")); got != on {
		t.Errorf("version %s counts as the latest, which the informer shows", got.ResourceVersion())
	}
	if got := kept.Latest(thing(t, "u", 6, "")); got.ResourceVersion() != "6" {
		t.Errorf("version %s counts as the latest", got.ResourceVersion())
	}
}

func TestTurnsFalse(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after string
		want          bool
	}{
		"True to False":         {`{"conditions":[{"type":"Ready","status":"True"}]}`, `{"conditions":[{"type":"Ready","status":"False"}]}`, true},
		"Unknown to False":      {`{"conditions":[{"type":"Ready","status":"Unknown"}]}`, `{"conditions":[{"type":"Ready","status":"False"}]}`, true},
		"False as before":       {`{"conditions":[{"type":"Ready","status":"False"}]}`, `{"conditions":[{"type":"Ready","status":"False"}]}`, false},
		"False from the start":  {`{}`, `{"conditions":[{"type":"Ready","status":"False"}]}`, false},
		"False to True":         {`{"conditions":[{"type":"Ready","status":"False"}]}`, `{"conditions":[{"type":"Ready","status":"True"}]}`, false},
		"one of two":            {`{"conditions":[{"type":"A","status":"True"},{"type":"B","status":"True"}]}`, `{"conditions":[{"type":"A","status":"True"},{"type":"B","status":"False"}]}`, true},
		"gone":                  {`{"conditions":[{"type":"Ready","status":"True"}]}`, `{}`, false},
		"not shaped as usual":   {`{"conditions":{"Ready":"True"}}`, `{"conditions":["False",{"status":"False"},{"type":1}]}`, false},
		"no status before":      {`null`, `{"conditions":[{"type":"Ready","status":"False"}]}`, false},
		"a value of other type": {`{"conditions":[{"type":"Ready","status":true}]}`, `{"conditions":[{"type":"Ready","status":false}]}`, false},
	} {
		var before, after map[string]any
		for text, into := range map[string]*map[string]any{tc.before: &before, tc.after: &after} {
			if err := json.NewDecoder(bytes.NewBufferString(text)).Decode(into); err != nil {
				t.Fatal(err)
			}
		}
		if tc.before == tc.after {
			before = after
		}
		if got := TurnsFalse(before, after); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// cluster is where Run writes: the last status of each parent, and who has its key.
type cluster struct {
	t  *testing.T
	s  *Store
	mu sync.Mutex
	// taken are the keys that somebody has, stored the statuses, and last those of the last responses.
	taken        map[string]bool
	stored, last map[string]int
	writes       int
	// since is when the first status was deferred of those that are not written.
	since map[string]time.Time
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{t: t, s: New(nil), taken: map[string]bool{}, stored: map[string]int{}, last: map[string]int{}, since: map[string]time.Time{}}
}

func (c *cluster) take(key parent.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken[key.Name] {
		return false
	}
	c.taken[key.Name] = true
	return true
}

func (c *cluster) done(key parent.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken[key.Name] = false
}

// write writes what is deferred, as it takes a while.
func (c *cluster) write(_ context.Context, key parent.Key) {
	<-time.After(3 * time.Millisecond)
	if kept, ok := c.s.Get(key); ok {
		c.store(key, int(kept.Content["n"].(int64)))
	}
}

func (c *cluster) store(key parent.Key, n int) {
	c.s.Drop(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored[key.Name] = n
	c.writes++
	if since, ok := c.since[key.Name]; ok && time.Since(since) > Limit+50*time.Millisecond {
		c.t.Errorf("a status of %s was written %v after it was first deferred", key.Name, time.Since(since))
	}
	delete(c.since, key.Name)
}

// sync is one sync of a parent: it takes some time, and then defers or writes its status.
func (c *cluster) sync(key parent.Key, on *object.Object, n int, took time.Duration, wrote bool) {
	if !c.take(key) {
		return
	}
	defer c.done(key)
	<-time.After(took)
	c.mu.Lock()
	c.last[key.Name] = n
	c.mu.Unlock()
	if wrote && mustDefer(c.t, c.s, key.Name, on, n) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, ok := c.since[key.Name]; !ok {
			c.since[key.Name] = time.Now()
		}
		return
	}
	c.store(key, n)
}

// TestTheLastStatusIsAlwaysThatOfTheLastResponse runs random schedules of syncs of a few parents, which write children or do not, take
// their time, and are hurried, and ends at a random time.
func TestTheLastStatusIsAlwaysThatOfTheLastResponse(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			c, on := newCluster(t), thing(t, "u", 1, "")
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				c.s.Run(ctx, Writing{Take: c.take, Done: c.done, Write: c.write, Parallel: 1 + r.IntN(3), Grace: time.Second})
			})
			synctest.Wait() // The numbers come from one source.
			for n := range 40 {
				key, took, wrote := keyOf(fmt.Sprint(r.IntN(4))), time.Duration(r.IntN(40))*time.Millisecond, r.IntN(4) > 0
				running.Go(func() { c.sync(key, on, n, took, wrote) })
				if r.IntN(8) == 0 {
					c.s.Hurry(key)
				}
				<-time.After(time.Duration(r.IntN(100)) * time.Millisecond)
			}
			stop()
			running.Wait()
			if c.s.Len() != 0 {
				t.Errorf("seed %d: %d statuses are left", seed, c.s.Len())
			}
			for name, last := range c.last {
				if c.stored[name] != last {
					t.Errorf("seed %d: parent %s has status %d, and the last response had %d", seed, name, c.stored[name], last)
				}
			}
		})
	}
}

func TestWhatCannotBeWrittenDoesNotKeepTheControllerFromStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		mustDefer(t, s, "a", thing(t, "u", 1, ""), 1)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		began := time.Now()
		s.Run(ctx, Writing{
			Take: func(parent.Key) bool { return true }, Done: func(parent.Key) {}, Parallel: 1, Grace: time.Second,
			Write: func(ctx context.Context, _ parent.Key) { <-ctx.Done() },
		})
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v to stop; want the grace", took)
		}
	})
}
