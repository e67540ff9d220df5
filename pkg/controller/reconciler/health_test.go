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
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

func TestHealthFollowsTheSyncsOfAllParents(t *testing.T) {
	s := newScene(t)
	s.exist(thing(t, "a", 1, "", ""), thing(t, "b", 1, "", ""), thing(t, "c", 1, "", ""))
	var mu sync.Mutex
	broken, hold := map[string]bool{"a": true, "b": true, "c": true}, make(chan struct{})
	c := s.start(&kind{write: func(sync *reconciler.Sync) error {
		<-hold
		mu.Lock()
		defer mu.Unlock()
		if broken[sync.Key.Name] {
			return errors.New(strings.Repeat("x", 10000))
		}
		return nil
	}}, nil)
	if h := c.Health(); !h.Started || h.Parents != 3 || h.Unsynced != 3 || h.Failing != 0 || h.Called || len(h.Hooks) > 0 {
		t.Errorf("before the first sync: %+v", h)
	}
	if n := c.Counters(); n.Parents != 3 || n.Failing != 0 {
		t.Errorf("before the first sync: %+v", n)
	}
	close(hold)
	s.eventually("all to fail", func() bool { h := c.Health(); return h.AllFailing() && h.Unsynced == 0 })
	if h := c.Health(); !strings.HasPrefix(h.Error, "things.example.com/") || len(h.Error) > 1000 {
		t.Errorf("the error is %q", h.Error)
	}
	list := c.LastErrors()
	if len(list) != 3 || c.Counters().Failing != 3 {
		t.Errorf("%d errors, %+v", len(list), c.Counters())
	}
	for _, e := range list {
		if e.Group != "example.com" || e.Resource != "things" || e.Name == "" || e.Time.IsZero() || len(e.Message) > 1000 {
			t.Errorf("an error is %+v", e)
		}
	}
	mu.Lock()
	clear(broken)
	mu.Unlock()
	s.eventually("all to be synced again", func() bool { return c.Health().Failing == 0 && len(c.LastErrors()) == 0 })
	if hooks := c.Hooks(); len(hooks) != 1 || hooks[0].Name != "sync" || hooks[0].Calls != 0 {
		t.Errorf("the hooks are %+v", hooks)
	}
}

// calling is a kind that calls the hook.
type calling struct{ *kind }

// Decide implements reconciler.Kind.
func (calling) Decide(ctx context.Context, s *reconciler.Sync) error { return s.Decide(ctx) }

// patience is a hook that asks to be called later, with that value of Retry-After.
type patience string

// RoundTrip implements http.RoundTripper.
func (p patience) RoundTrip(r *http.Request) (*http.Response, error) {
	header := http.Header{}
	if p != "" {
		header.Set("Retry-After", string(p))
	}
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: header, Body: http.NoBody, Request: r}, nil
}

// TestNothingIsReadyWithoutAHookThatAlwaysAsksForPatience: it does not matter whether it says for how long.
func TestNothingIsReadyWithoutAHookThatAlwaysAsksForPatience(t *testing.T) {
	for _, after := range []string{"20", "0", "", "soon"} {
		t.Run(after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.shared.Options.HookTransport = patience(after)
				s.exist(thing(t, "a", 1, "", ""))
				k := &kind{}
				c := s.start(k, func(config *reconciler.Config) { config.Kind = calling{k} })
				<-time.After(10 * time.Minute)
				synctest.Wait()
				if health := c.Health(); len(health.Hooks) != 1 || !health.Hooks[0].Blocking {
					t.Errorf("got %+v, want a hook without which nothing works", health.Hooks)
				}
			})
		})
	}
}
