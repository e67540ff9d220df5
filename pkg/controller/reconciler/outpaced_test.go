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
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// onVersion is the version of the parent on which a patch depends.
var onVersion = regexp.MustCompile(`resourceVersion(?:"|","value"):\s*"(\d+)"`)

var phaseOf = regexp.MustCompile(`"phase":"(\w+)"`)

// editedParent is an API server with the parent p, which others change.
type editedParent struct {
	s *scene

	mu      sync.Mutex
	version int
	// generation and beat are what others write, status is what the controller writes.
	generation, beat int
	status           string
	finalizers       string
	conflicts        int
	// statuses counts the writes of the status.
	statuses int
	// annotated and deleted say that the controller has done that.
	annotated, deleted bool
}

func (p *editedParent) object() *object.Object {
	return thing(p.s.t, "p", p.version, fmt.Sprintf(`,"generation":%d,"annotations":{"beat":"%d"},"finalizers":[%s]`, p.generation, p.beat, p.finalizers), p.status)
}

// ServeHTTP implements http.Handler: patches of the parent, which depend on its version, and reads of it. Others get a new version back.
func (p *editedParent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	p.mu.Lock()
	defer p.mu.Unlock()
	on := onVersion.FindSubmatch(body)
	switch {
	case strings.Contains(r.URL.Path, "/events"):
		_, _ = w.Write(body)
	case r.Method == http.MethodPost:
		_, _ = fmt.Fprint(w, strings.Replace(string(body), `"metadata":{`, `"metadata":{"uid":"uid-w","resourceVersion":"5",`, 1))
	case r.Method == http.MethodGet:
		_, _ = w.Write(p.object().JSON())
	case len(on) == 0 || string(on[1]) != fmt.Sprint(p.version):
		p.conflicts++
		refusal(http.StatusConflict, "Conflict")(w, r)
	case r.Method == http.MethodDelete:
		p.deleted = true
	default:
		p.version++
		p.annotated = p.annotated || strings.Contains(string(body), "mine")
		if phase := phaseOf.FindSubmatch(body); phase != nil {
			p.statuses++
			p.status = fmt.Sprintf(`,"status":{"phase":%q}`, phase[1])
		}
		if strings.Contains(string(body), `"finalizers"`) {
			p.finalizers = ""
		}
		_, _ = w.Write(p.object().JSON())
	}
}

// change has somebody change the parent, of which the informer hears at once.
func (p *editedParent) change(how func(p *editedParent)) {
	p.mu.Lock()
	p.version++
	how(p)
	o := p.object()
	p.mu.Unlock()
	p.s.update(p.s.things, o)
}

func (p *editedParent) get(what func(p *editedParent) bool) func() bool {
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return what(p)
	}
}

func newEditedParent(t *testing.T, finalizers string) *editedParent {
	t.Helper()
	p := &editedParent{version: 10, generation: 1, finalizers: finalizers}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.s = newSceneAt(t, server.URL)
	p.s.exist(p.object())
	return p
}

// TestAStatusThatIsLeftDoesNotHideAnEdit has a user edit the parent during the second of two syncs that follow each other at once: what that one
// writes is a conflict.
func TestAStatusThatIsLeftDoesNotHideAnEdit(t *testing.T) {
	p := newEditedParent(t, "")
	syncs := 0
	var second atomic.Bool
	p.s.start(&kind{
		decide: func(*reconciler.Sync) error {
			if syncs++; syncs == 2 {
				p.change(func(p *editedParent) { p.generation = 2 })
			}
			return nil
		},
		write: func(sync *reconciler.Sync) error {
			p.s.wantWidget(sync, nil)
			if err := sync.ReconcileChildren(t.Context(), "children"); err != nil {
				return err
			}
			if syncs == 1 {
				return sync.WriteStatus(t.Context(), map[string]any{"phase": "First"}, true)
			}
			phase := "Second"
			if syncs > 2 {
				phase = "Last"
			}
			err := sync.WriteStatus(t.Context(), map[string]any{"phase": phase}, false)
			if syncs == 2 {
				second.Store(err == nil)
			}
			return err
		},
	}, nil)
	p.s.eventually("the status of the generation 2", p.get(func(p *editedParent) bool { return strings.Contains(p.status, "Last") }))
	if second.Load() {
		t.Error("the second sync wrote a status over generation 2, and the hook was asked about generation 1")
	}
}

// TestAParentThatChangesFasterThanTheHookResponds has another client change the parent during every call of the hook.
func TestAParentThatChangesFasterThanTheHookResponds(t *testing.T) {
	status := parent.Changes{Status: map[string]any{"phase": "Done"}}
	for name, tc := range map[string]struct {
		reason string
		change func(p *editedParent)
		write  func(*reconciler.Sync) error
		done   func(p *editedParent) bool
		// never says that what is done must not be.
		never bool
	}{
		"GetsItsStatus": {
			"What others change has nothing to do with it.", func(p *editedParent) { p.beat++ },
			func(s *reconciler.Sync) error { return s.WriteStatus(t.Context(), status.Status, false) },
			func(p *editedParent) bool { return strings.Contains(p.status, "Done") }, false,
		},
		"IsLetGo": {
			"It would stay for ever.", func(p *editedParent) { p.beat++ },
			func(s *reconciler.Sync) error { return s.RemoveFinalizer(t.Context()) },
			func(p *editedParent) bool { return p.finalizers == "" }, false,
		},
		"GetsItsStatusThoughItIsEdited": {
			"It says of which generation it is.", func(p *editedParent) { p.generation++ },
			func(s *reconciler.Sync) error { return s.WriteStatus(t.Context(), status.Status, false) },
			func(p *editedParent) bool { return strings.Contains(p.status, "Done") }, false,
		},
		"KeepsTheAnnotationThatIsContendedAfterItsStatus": {
			"The status alone has nothing to do with it.", func(p *editedParent) { p.beat++ },
			func(s *reconciler.Sync) error {
				if err := s.WriteStatus(t.Context(), status.Status, false); err != nil {
					return err
				}
				return s.WriteParent(t.Context(), parent.Changes{Annotations: map[string]*string{"beat": new("mine")}})
			},
			func(p *editedParent) bool { return p.annotated }, true,
		},
		"IsNotDeletedOverAChange": {
			"It may say that it is to stay.", func(p *editedParent) { p.beat++ },
			func(s *reconciler.Sync) error {
				if err := s.WriteStatus(t.Context(), status.Status, false); err != nil {
					return err
				}
				return s.DeleteParent(t.Context())
			},
			func(p *editedParent) bool { return p.deleted }, true,
		},
		"KeepsTheAnnotationThatIsContended": {
			"Each side would take the other's change away unseen.", func(p *editedParent) { p.beat++ },
			func(s *reconciler.Sync) error {
				return s.WriteParent(t.Context(), parent.Changes{Status: status.Status, Annotations: map[string]*string{"beat": new("mine")}})
			},
			func(p *editedParent) bool { return p.status != "" }, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newEditedParent(t, ours)
			syncs := 0
			p.s.start(&kind{
				decide: func(*reconciler.Sync) error {
					if syncs++; !p.get(tc.done)() {
						p.change(tc.change)
					}
					return nil
				},
				write: func(s *reconciler.Sync) error { return tc.write(s) },
			}, finalizes)
			if tc.never {
				p.s.eventually("conflicts", p.get(func(p *editedParent) bool { return p.conflicts > 6 || tc.done(p) }))
				if p.get(tc.done)() {
					t.Errorf("it was written. %s", tc.reason)
				}
				return
			}
			p.s.eventually("the write. "+tc.reason, p.get(tc.done))
			if n := p.conflicts; n < 3 {
				t.Errorf("%d conflicts: a change that is not seen is looked at first", n)
			}
		})
	}
}
