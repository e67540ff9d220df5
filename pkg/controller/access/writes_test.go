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

package access

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

func TestWritesThatAreRefused(t *testing.T) {
	create := client.Request{Verbs: []string{"create"}, Target: client.Target{Resource: pods, Namespace: "ns"}}
	application := client.Request{Verbs: []string{"patch", "create"}, Target: client.Target{Resource: pods, Namespace: "ns", Name: "a"}}
	blocking := apierrors.NewForbidden(pods.GroupResource(), "a", errors.New("cannot set blockOwnerDeletion if an ownerReference refers to"))
	inNamespace := finalize
	inNamespace.Namespace = "ns"
	for name, tc := range map[string]struct {
		request client.Request
		err     error
		taken   rights.Right
		lacks   string
	}{
		"for want of a right":             {create, forbidden, createPods, "create pods in namespace ns"},
		"by a quota":                      {create, forbidden, rights.Right{}, ""},
		"an application":                  {application, forbidden, patchPods, "patch pods in namespace ns"},
		"an application that creates":     {application, forbidden, createPods, "create pods in namespace ns"},
		"for want of a right on parents":  {create, blocking, inNamespace, "update foos.example.com/finalizers in namespace ns"},
		"by another error than forbidden": {create, apierrors.NewConflict(pods.GroupResource(), "a", nil), createPods, ""},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(s *scene) {
				s.take(alice, tc.taken)
				s.pass(0)
				s.Observe(s.t.Context(), tc.request, tc.err)
				s.pass(retry)
				s.shows(false, tc.lacks)
				if tc.lacks == "" {
					return
				}
				told := len(s.changed)
				s.give(alice)
				s.pass(half)
				if s.shows(false, ""); len(s.changed) == told || s.released != 1 {
					t.Errorf("told %d times that the right is there again; the end of a hold %d times, want that of the start", len(s.changed)-told, s.released)
				}
			})
		})
	}
	t.Run("until one succeeds", func(t *testing.T) {
		run(t, func(s *scene) {
			s.take(alice, createPods)
			s.pass(0)
			s.Observe(s.t.Context(), create, forbidden)
			s.pass(retry)
			s.Observe(s.t.Context(), application, nil) // The object may have been there.
			s.shows(false, "create pods in namespace ns")
			s.Observe(s.t.Context(), create, nil)
			s.shows(false, "")
		})
	})
	t.Run("very many", func(t *testing.T) {
		run(t, func(s *scene) {
			s.pass(0)
			before := len(s.askedAt)
			for range 100 {
				s.Observe(s.t.Context(), create, forbidden)
				s.pass(time.Second / 10)
			}
			if n := len(s.askedAt) - before; n > 3 {
				t.Errorf("%d reviews within ten seconds", n)
			}
			for i := range 2 * maxRefused {
				one := create
				one.Target.Namespace = "ns" + strings.Repeat("x", i)
				s.Observe(s.t.Context(), one, forbidden)
			}
			s.pass(retry)
			if n := len(s.asked); n != maxRefused+3 {
				t.Errorf("asked for %d rights", n)
			}
		})
	})
}

// A hook that asked for too much by mistake, and was corrected, leaves nobody a right to grant.
func TestWritesThatAreWantedNoMore(t *testing.T) {
	create := client.Request{Verbs: []string{"create"}, Target: client.Target{Resource: pods, Namespace: "ns"}}
	const lacks = "create pods in namespace ns"
	// again is the longest time between two tries of a parent that fails.
	const again = 5 * time.Minute
	for name, tc := range map[string]struct {
		reason string
		// meanwhile happens after the first refusal, and held and lacks are what shows then.
		meanwhile func(s *scene)
		held      bool
		lacks     string
	}{
		"not tried any more": {
			"Nobody needs the right.", func(s *scene) { s.pass(time.Hour) }, false, "",
		},
		"tried after every back-off": {
			"The right is needed still.", func(s *scene) {
				for range 12 {
					s.pass(again)
					s.shows(false, lacks)
					s.Observe(s.t.Context(), create, forbidden)
				}
			}, false, lacks,
		},
		"tried late": {
			"A sync may have to wait for its turn.", func(s *scene) { s.pass(2 * again) }, false, lacks,
		},
		"not tried because the controller is held": {
			"The parents are tried when the controller goes on, and the right is to be given with those that it waits for.",
			func(s *scene) {
				s.take(alice, listPods)
				s.pass(time.Hour)
			}, true, "list pods; " + lacks,
		},
		"not tried because the controller is paused": {
			"It is tried when the pause ends, and the right may be given until then.", func(s *scene) {
				s.Pause(true)
				s.pass(time.Hour)
			}, false, lacks,
		},
		"tried soon after a pause": {
			"It has had no time to be tried before.", func(s *scene) {
				s.Pause(true)
				s.pass(time.Hour)
				s.Pause(false)
				s.pass(again)
			}, false, lacks,
		},
		"not tried any more after a pause": {
			"Nobody needs the right.", func(s *scene) {
				s.Pause(true)
				s.pass(time.Hour)
				s.Pause(false)
				s.pass(time.Hour)
			}, false, "",
		},
		"tried soon after the controller was held": {
			"It has had no time to be tried before.", func(s *scene) {
				s.take(alice, listPods)
				s.pass(time.Hour)
				s.set(func(c *cluster) { c.denied[alice] = []rights.Right{createPods} })
				s.pass(again)
			}, false, lacks,
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(s *scene) {
				s.take(alice, createPods)
				s.pass(0)
				s.Observe(s.t.Context(), create, forbidden)
				s.pass(half)
				s.shows(false, lacks)
				tc.meanwhile(s)
				if state := s.State(); state.Held != tc.held || state.Lacks() != tc.lacks {
					t.Errorf("%s Held %v, lacks %q; want %v, %q", tc.reason, state.Held, state.Lacks(), tc.held, tc.lacks)
				}
			})
		})
	}
	t.Run("so many that others do not show", func(t *testing.T) {
		run(t, func(s *scene) {
			s.take(alice, createPods)
			s.pass(0)
			for i := range maxRefused {
				one := create
				one.Target.Namespace = "gone" + strings.Repeat("x", i)
				s.take(alice, rights.Right{Verb: rights.Create, Resource: "pods", Namespace: one.Target.Namespace})
				s.Observe(s.t.Context(), one, forbidden)
			}
			s.pass(time.Hour)
			s.Observe(s.t.Context(), create, forbidden)
			s.pass(half)
			s.shows(false, lacks)
		})
	})
}
