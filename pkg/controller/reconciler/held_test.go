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
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// TestAParentThatIsHeldBackIsSyncedWhenTheControllerChanges has the hook return another label each time, until the parent is held back.
func TestAParentThatIsHeldBackIsSyncedWhenTheControllerChanges(t *testing.T) {
	testHeldBack(t, func(c *reconciler.Controller) error {
		changed := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "c", Annotations: map[string]string{"a": "b"}}}
		return c.Redefine(t.Context(), reconciler.OfComposite(changed))
	})
}

// TestAParentThatIsHeldBackIsSyncedWhenSomebodyAsksForIt is about who has changed the hook.
func TestAParentThatIsHeldBackIsSyncedWhenSomebodyAsksForIt(t *testing.T) {
	testHeldBack(t, func(c *reconciler.Controller) error {
		if n := c.Resync([]v1alpha1.ParentReference{{Group: "example.com", Resource: "things", Name: "p"}}); n != 1 {
			return fmt.Errorf("%d parents are resynced", n)
		}
		return nil
	})
}

func testHeldBack(t *testing.T, end func(*reconciler.Controller) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, _, label := newLabelScene(t)
		s.exist(thing(t, "p", 1, "", ""))
		var syncs atomic.Int64
		c := s.start(&kind{write: func(sync *reconciler.Sync) error {
			n := strconv.FormatInt(syncs.Add(1), 10)
			label.Store(n)
			return sync.WriteParent(t.Context(), parent.Changes{Labels: map[string]*string{"n": &n}})
		}}, nil)
		synctest.Wait() // Each response is taken over, and is the next change.
		if h := c.Health(); h.Differing != 1 {
			t.Fatalf("%d parents do not settle after %d syncs", h.Differing, syncs.Load())
		}
		before := syncs.Load()
		if err := end(c); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if syncs.Load() == before {
			t.Error("it is not synced at once")
		}
	})
}

// TestAParentThatDoesNotSettleIsHeldBackWhileItsSyncsFail has the hook return another label each time, or in some syncs, beside a child that
// cannot be written.
func TestAParentThatDoesNotSettleIsHeldBackWhileItsSyncsFail(t *testing.T) {
	const endless = 1000
	for name, tc := range map[string]struct {
		reason string
		// writes says which syncs write.
		writes  func(sync int64) bool
		differs int
	}{
		"each sync writes":            {"The writes have it synced again and again.", func(int64) bool { return true }, 1},
		"none writes":                 {"The back-off slows it down.", func(int64) bool { return false }, 0},
		"the next one does not write": {"It is the hook that asks to be called again.", func(sync int64) bool { return sync%2 == 1 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, version, label := newLabelScene(t)
				s.exist(thing(t, "p", 1, "", ""))
				var syncs atomic.Int64
				c := s.start(&kind{write: func(sync *reconciler.Sync) error {
					n := syncs.Add(1)
					failed := errors.New("another child cannot be written")
					sync.Decision.ResyncAfter = 5 * time.Second
					if n > endless || !tc.writes(n) {
						return failed
					}
					text := strconv.FormatInt(n, 10)
					label.Store(text)
					return errors.Join(failed, sync.WriteParent(t.Context(), parent.Changes{Labels: map[string]*string{"n": &text}}))
				}}, nil)
				<-time.After(5 * time.Minute)
				synctest.Wait()
				if h := c.Health(); h.Differing != tc.differs || h.Failing != 1 || syncs.Load() >= endless {
					t.Errorf("%d parents differ and %d fail after %d syncs and %d writes, want %d and 1: %s",
						h.Differing, h.Failing, syncs.Load(), version.Load()-1, tc.differs, tc.reason)
				}
			})
		})
	}
}

// newLabelScene returns a scene whose API server takes a label of the parent as it is stored last.
func newLabelScene(t *testing.T) (s *scene, version *atomic.Int64, label *atomic.Value) {
	t.Helper()
	version, label = new(atomic.Int64), new(atomic.Value)
	version.Store(1)
	return newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(func(r *http.Request) (int, string) {
		if r.Method != http.MethodPatch {
			return http.StatusOK, `{}`
		}
		return http.StatusOK, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"p","uid":"uid-p","resourceVersion":"%d","labels":{"n":%q}}}`,
			version.Add(1), label.Load())
	})}), version, label
}

// TestAParentThatIsPolledSettlesWhereItsStatusIsIgnored has the hook return another status each time. Where changes of the status are ignored no
// sync follows from the write, and all are those of the period.
func TestAParentThatIsPolledSettlesWhereItsStatusIsIgnored(t *testing.T) {
	const period, periods = 10 * time.Second, 100
	for name, tc := range map[string]struct {
		reason string
		// labeled says that a label is another one each time, too; fails that the syncs fail.
		labeled, fails bool
		polled         bool
	}{
		"only the status is written": {"Nothing follows from that.", false, false, true},
		"and the syncs fail":         {"The back-off slows down what follows from that.", false, true, true},
		"a label is written":         {"It has the parent synced again.", true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var syncs atomic.Int64
				s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(func(r *http.Request) (int, string) {
					if r.Method != http.MethodPatch {
						return http.StatusOK, `{}`
					}
					n, labels := int(syncs.Load()), ""
					if tc.labeled {
						labels = fmt.Sprintf(`,"labels":{"n":"%d"}`, n)
					}
					return http.StatusOK, string(thing(t, "p", n+1, labels, fmt.Sprintf(`,"status":{"n":%d}`, n)).JSON())
				})})
				s.exist(thing(t, "p", 1, "", ""))
				c := s.start(&kind{write: func(sync *reconciler.Sync) error {
					n := syncs.Add(1)
					changes := parent.Changes{Status: map[string]any{"n": n}}
					if tc.labeled {
						changes.Labels = map[string]*string{"n": new(strconv.FormatInt(n, 10))}
					}
					if err := sync.WriteParent(t.Context(), changes); err != nil || !tc.fails {
						return err
					}
					return errors.New("a child cannot be written")
				}}, func(c *reconciler.Config) {
					c.Sources[0].IgnoreStatus = true
					c.Definition.ResyncPeriodSeconds = new(int32(period / time.Second))
				})
				<-time.After(periods*period + time.Second)
				synctest.Wait()
				differing := c.Health().Differing
				if settles, polled := differing == 0, syncs.Load() > periods; settles != tc.polled || polled != tc.polled {
					t.Errorf("%d parents differ after %d syncs in %d periods: %s", differing, syncs.Load(), periods, tc.reason)
				}
			})
		})
	}
}
