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
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// TestAStatusThatIsLeftToTheNextSyncIsNotLost has a sync create a child and return the phase First, which it leaves to the sync that follows.
func TestAStatusThatIsLeftToTheNextSyncIsNotLost(t *testing.T) {
	type next func(ctx context.Context, p *editedParent, sync *reconciler.Sync) error
	unseen := func(p *editedParent, change func(p *editedParent)) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.version++
		change(p)
	}
	paused := make(chan struct{})
	fails := errors.New("no response")
	for name, tc := range map[string]struct {
		reason string
		next   next
		// want is the phase at the end, and writes how many writes of it there were.
		want   string
		writes int
	}{
		"Another": {
			"One status is written in place of two.", func(ctx context.Context, _ *editedParent, sync *reconciler.Sync) error {
				return sync.WriteStatus(ctx, map[string]any{"phase": "Second"}, true)
			}, "Second", 1,
		},
		"TheSame": {
			"Nothing has changed since.", func(ctx context.Context, _ *editedParent, sync *reconciler.Sync) error {
				return sync.WriteStatus(ctx, map[string]any{"phase": "First"}, true)
			}, "First", 1,
		},
		"None": {
			"The status stays as the hook was shown it.", func(ctx context.Context, _ *editedParent, sync *reconciler.Sync) error {
				return sync.WriteStatus(ctx, nil, true)
			}, "First", 1,
		},
		"NotAsFarAsTheStatus": {
			"Nobody else writes it.", func(context.Context, *editedParent, *reconciler.Sync) error { return nil }, "First", 1,
		},
		"Fails":  {"It is the last one that the hook returned.", func(context.Context, *editedParent, *reconciler.Sync) error { return fails }, "First", 1},
		"Panics": {"Likewise.", func(context.Context, *editedParent, *reconciler.Sync) error { panic("some bug") }, "First", 1},
		"FailsAfterAChangeThatIsNotShownYet": {
			"The change has nothing to do with the status.", func(_ context.Context, p *editedParent, _ *reconciler.Sync) error {
				unseen(p, func(p *editedParent) { p.beat++ })
				return fails
			}, "First", 1,
		},
		"FailsAfterAChange": {
			"Likewise.", func(_ context.Context, p *editedParent, _ *reconciler.Sync) error {
				p.change(func(p *editedParent) { p.beat++ })
				return fails
			}, "First", 1,
		},
		"FailsAfterAnotherClientsStatus": {
			"The other client was later.", func(_ context.Context, p *editedParent, _ *reconciler.Sync) error {
				p.change(func(p *editedParent) { p.status = `,"status":{"phase":"Theirs"}` })
				return fails
			}, "Theirs", 0,
		},
		"FailsAfterAnotherClientsStatusThatIsNotShownYet": {
			"Likewise.", func(_ context.Context, p *editedParent, _ *reconciler.Sync) error {
				unseen(p, func(p *editedParent) { p.status = `,"status":{"phase":"Theirs"}` })
				return fails
			}, "Theirs", 0,
		},
		"CutShortByAPause": {
			"A controller that is paused has ended what it began.", func(ctx context.Context, _ *editedParent, _ *reconciler.Sync) error {
				close(paused)
				<-ctx.Done()
				return ctx.Err()
			}, "First", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newEditedParent(t, "")
			var syncs atomic.Int64
			c := p.s.start(&kind{apply: func(ctx context.Context, sync *reconciler.Sync) error {
				switch syncs.Add(1) {
				case 1:
					p.s.wantWidget(sync, nil)
					if err := sync.ReconcileChildren(ctx, "children"); err != nil {
						return err
					}
					return sync.WriteStatus(ctx, map[string]any{"phase": "First"}, true)
				case 2:
					if shown, _ := sync.Parent.Field("status", "phase"); string(shown) != `"First"` || p.statusWrites() != 0 {
						t.Errorf("the next sync is shown the phase %s, which was written %d times", shown, p.statusWrites())
					}
					return tc.next(ctx, p, sync)
				}
				return nil
			}}, nil)
			if name == "CutShortByAPause" {
				<-paused
				if err := c.Redefine(t.Context(), defined(true)); err != nil {
					t.Fatal(err)
				}
			}
			p.s.eventually("the second sync to end", func() bool { return syncs.Load() > 1 && c.Health().UnderWay == 0 })
			if got, want := p.phase(), tc.want; got != want || p.statusWrites() != tc.writes {
				t.Errorf("the phase is %q after %d writes, want %q after %d. %s", got, p.statusWrites(), want, tc.writes, tc.reason)
			}
		})
	}
}

func (p *editedParent) statusWrites() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.statuses
}

func (p *editedParent) phase() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if phase := phaseOf.FindStringSubmatch(p.status); phase != nil {
		return phase[1]
	}
	return ""
}

// wantWidgets has a sync of the parent p want the widgets w1 to wN.
func wantWidgets(s *scene, sync *reconciler.Sync, n int) {
	sync.Observed = s.widgets.ControlledBy("uid-p")
	sync.Decision = reconciler.Decision{Observed: sync.Observed}
	for i := range n {
		name := fmt.Sprintf("w%d", i+1)
		sync.Decision.Desired = append(sync.Decision.Desired, children.Desired{
			Key: children.Key{Group: widgets.Group, Kind: "Widget", Name: name}, APIVersion: "example.com/v1",
			Content: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}},
		})
	}
}

// TestASyncGoesOnAtOnceAFewTimes has each sync of a parent want another child, and every fourth of another one come before what follows.
func TestASyncGoesOnAtOnceAFewTimes(t *testing.T) {
	p := newEditedParent(t, "")
	p.s.update(p.s.things, thing(t, "q", 3, "", ""))
	const passes = 4
	var syncs []string
	var statuses []int
	var done atomic.Bool
	p.s.start(&kind{apply: func(ctx context.Context, sync *reconciler.Sync) error {
		if done.Load() {
			return nil
		}
		if syncs = append(syncs, sync.Parent.Name()); sync.Parent.Name() != "p" {
			return nil
		}
		n := len(syncs)
		if n > 2*passes {
			done.Store(true)
			return nil
		}
		statuses = append(statuses, p.statusWrites())
		wantWidgets(p.s, sync, n)
		if n == 1 {
			p.s.update(p.s.things, thing(t, "q", 4, `,"labels":{"n":"1"}`, "")) // It waits from the first sync on.
		}
		if err := sync.ReconcileChildren(ctx, "children"); err != nil {
			return err
		}
		return sync.WriteStatus(ctx, map[string]any{"phase": fmt.Sprintf("P%d", n)}, true)
	}}, oneWorker)
	p.s.eventually("the parent to have been synced so often", done.Load)
	at := -1
	for i, name := range syncs {
		if name == "q" && i > 0 {
			at = i
			break
		}
	}
	if at > passes+1 || at < 0 {
		t.Errorf("the other parent has its turn after %d syncs: %v", at, syncs)
	}
	for i, writes := range statuses {
		if writes > i/passes+1 {
			t.Errorf("before sync %d the status was written %d times: %v", i+1, writes, statuses)
		}
	}
}

// TestAStatusThatWasLeftWithWhichMoreIsStoredIsShown has the kind redefined between the call of the hook and the write of the status that it was
// shown: what the API server stores with it has a field more, and of the write comes one event.
func TestAStatusThatWasLeftWithWhichMoreIsStoredIsShown(t *testing.T) {
	stored := thing(t, "p", 11, "", `,"spec":{"size":1},"status":{"phase":"X"}`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(r.URL.Path, "/events"):
			_, _ = w.Write(body)
		case r.Method == http.MethodPost:
			_, _ = fmt.Fprint(w, strings.Replace(string(body), `"metadata":{`, `"metadata":{"uid":"uid-w","resourceVersion":"5",`, 1))
		default:
			_, _ = w.Write(stored.JSON())
		}
	}))
	t.Cleanup(server.Close)
	s := newSceneAt(t, server.URL)
	s.exist(thing(t, "p", 1, "", ""))
	var syncs, shown atomic.Int64
	s.start(&kind{
		decide: func(sync *reconciler.Sync) error {
			if _, there := sync.Parent.Field("spec", "size"); there {
				shown.Add(1)
			}
			return nil
		},
		write: func(sync *reconciler.Sync) error {
			s.wantWidget(sync, nil)
			if err := sync.ReconcileChildren(t.Context(), "children"); err != nil {
				return err
			}
			first := syncs.Add(1) == 1
			if err := sync.WriteStatus(t.Context(), map[string]any{"phase": "X"}, first); err != nil {
				return err
			}
			if first {
				s.update(s.widgets, widget(t, "w", 5, "p", ""))
			} else {
				s.update(s.things, stored)
			}
			return nil
		},
	}, nil)
	s.eventually("the hook to be shown the field", func() bool { return shown.Load() > 0 })
}
