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

package webhook

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func key(name string) RootKey {
	return RootKey{Group: "example.com", Kind: "Fleet", Namespace: "shop", Name: name}
}

func TestEtagEntriesBelongToTheirObject(t *testing.T) {
	c := newEtagCache(1<<20, nil, 0, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	c.put(key("a"), "1", []byte("A"), "text/plain")
	other := key("a")
	other.Namespace = "base"
	for _, missing := range []RootKey{key("b"), other} {
		if got := c.get(missing); got != nil {
			t.Errorf("%v has the entry of another object: %v", missing, got)
		}
	}
	c.put(key("a"), "2", []byte("AA"), "")
	if got := c.get(key("a")); got == nil || got.tag != "2" || string(got.body) != "AA" {
		t.Errorf("got %v, want the second response", got)
	}
	c.forget(key("a"))
	c.forget(key("a"))
	if got := c.get(key("a")); got != nil || c.bytes != 0 || c.used.Len() != 0 {
		t.Errorf("a forgotten entry is still there: %v, %d bytes, %d entries", got, c.bytes, c.used.Len())
	}
}

func TestEtagEntriesExpire(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	c := newEtagCache(1<<20, nil, time.Minute, clock)
	c.put(key("a"), "1", []byte("A"), "")
	c.put(key("b"), "1", []byte("B"), "")
	clock.SetTime(time.Unix(59, 0))
	if c.get(key("a")) == nil {
		t.Error("the entry expired early")
	}
	clock.SetTime(time.Unix(60, 0))
	if c.get(key("a")) != nil {
		t.Error("the entry did not expire")
	}
	c.put(key("c"), "1", []byte("C"), "")
	if len(c.entries) != 1 || c.used.Len() != 1 {
		t.Errorf("%d entries are left, want 1: expired ones that are not used again are dropped with the next response", len(c.entries))
	}
}

func TestEtagEntriesWithoutLifetimeStay(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	c := newEtagCache(1<<20, nil, 0, clock)
	c.put(key("a"), "1", []byte("A"), "")
	clock.SetTime(time.Unix(0, 0).Add(1000 * 24 * time.Hour))
	if c.get(key("a")) == nil {
		t.Error("the entry expired without a lifetime")
	}
}

func TestEtagCacheIsBounded(t *testing.T) {
	body := make([]byte, 1000)
	perEntry := int64(len(body)) + entryOverhead
	c := newEtagCache(3*perEntry, nil, 0, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	for i := range 3 {
		c.put(key(strconv.Itoa(i)), "1", body, "")
	}
	c.get(key("0")) // used again, so that 1 is the oldest
	c.put(key("3"), "1", body, "")
	if c.get(key("1")) != nil {
		t.Error("the least recently used entry is still there")
	}
	for _, name := range []string{"0", "2", "3"} {
		if c.get(key(name)) == nil {
			t.Errorf("entry %s is gone", name)
		}
	}
	c.put(key("2"), "2", make([]byte, 10*perEntry), "")
	if c.get(key("2")) != nil {
		t.Error("a response over the bound was remembered, or the old one was kept in its place")
	}
	if c.bytes > c.maxBytes {
		t.Errorf("%d bytes, more than %d", c.bytes, c.maxBytes)
	}
}

// TestAnEtagCacheKeepsWhatItHasWhenOthersHoldTheRest fills the budget from one cache, and has another one of the same budget.
func TestAnEtagCacheKeepsWhatItHasWhenOthersHoldTheRest(t *testing.T) {
	perEntry := int64(1000) + entryOverhead
	for name, tc := range map[string]struct {
		reason string
		size   int64
		want   []string
	}{
		"AsLargeAsAnother": {"The least recently used one of this cache makes room.", perEntry, []string{"b", "c"}},
		"AsLargeAsAll":     {"All of this cache make room.", 2 * perEntry, []string{"c"}},
		"Larger":           {"There is no room even without them, and they stay.", 2*perEntry + 1, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			budget := NewBudget(4 * perEntry)
			others, own := newEtagCache(10*perEntry, budget, 0, clock), newEtagCache(10*perEntry, budget, 0, clock)
			for _, name := range []string{"x", "y"} {
				others.put(key(name), "1", make([]byte, 1000), "")
			}
			for _, name := range []string{"a", "b"} {
				own.put(key(name), "1", make([]byte, 1000), "")
			}
			own.put(key("c"), "1", make([]byte, tc.size-entryOverhead), "")
			var kept []string
			for _, name := range []string{"a", "b", "c"} {
				if entry := own.get(key(name)); entry != nil {
					kept = append(kept, name)
					entry.release()
				}
			}
			if !slices.Equal(kept, tc.want) || others.len() != 2 {
				t.Errorf("%s\nkept %v, want %v; the other cache has %d", tc.reason, kept, tc.want, others.len())
			}
		})
	}
}

func TestEtagCacheIsSafeForConcurrentUse(t *testing.T) {
	c := newEtagCache(10*entryOverhead, nil, time.Minute, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 200 {
				k := key(strconv.Itoa((i * worker) % 20))
				c.put(k, "1", []byte("x"), "")
				c.get(k)
				c.forget(k)
			}
		})
	}
	wg.Wait()
	if len(c.entries) != c.used.Len() {
		t.Errorf("%d entries in the map, %d in the list", len(c.entries), c.used.Len())
	}
}
