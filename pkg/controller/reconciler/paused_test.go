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
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// pausedBy is metadata with a value of the annotation, which is in JSON.
func pausedBy(value string) string {
	return `,"annotations":{"metacontroller.k8s.io/paused":` + value + `}`
}

// annotate has another client write the annotation of the parent.
func (k *keeping) annotate(metadata string) {
	k.server.mu.Lock()
	k.server.metadata = metadata
	k.server.mu.Unlock()
	k.server.change(nil)
	synctest.Wait()
}

func TestAParentIsPausedByItsAnnotation(t *testing.T) {
	const always = "until the annotation metacontroller.k8s.io/paused is taken off"
	const finalizer = `,"finalizers":["metacontroller.io/compositecontroller-c"],"deletionTimestamp":"2026-01-01T00:00:00Z"`
	hour := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC).Format(time.RFC3339) // The time of synctest begins an hour before.
	for name, tc := range map[string]struct {
		reason, metadata string
		// until is what is said of the pause, empty for none, and event is one that there is.
		until, event string
	}{
		"no annotation":       {"It is as ever.", "", "", ""},
		"true":                {"It is paused for as long as somebody wants.", pausedBy(`"true"`), always, "Paused"},
		"false":               {"Who does not delete it may set it so.", pausedBy(`"false"`), "", ""},
		"a time":              {"It ends by itself.", pausedBy(`"` + hour + `"`), "until " + hour, "Paused"},
		"a time that is over": {"Nobody has to take it off.", pausedBy(`"1999-01-01T00:00:00Z"`), "", ""},
		"another value":       {"A mistake must not stop anything, nor be silent.", pausedBy(`"yes"`), "", "NotPaused"},
		"no value":            {"Likewise.", pausedBy(`""`), "", "NotPaused"},
		"while it is deleted": {"The finalizer stays.", pausedBy(`"true"`) + finalizer, always + "; it is being deleted, and stays until it is finalized after that", "Paused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeepingWith(t, "example.com", []string{"replicas", "conditions"}, tc.metadata, func(*reconciler.Sync) error { return nil })
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { k.shared.Recorder.Run(ctx) })
				defer running.Wait()
				defer stop()
				for range 3 {
					k.server.change(nil)
					<-time.After(time.Minute)
				}
				if paused := tc.until != ""; paused != (k.syncs.Load() == 0) {
					t.Errorf("%s: %d syncs", tc.reason, k.syncs.Load())
				}
				state, _ := k.controller.State(v1alpha1.ParentReference{Group: "example.com", Resource: "things", Name: "p"}, "")
				want, condition := v1alpha1.ParentSynced, "True Synced: the last sync ended well"
				if tc.until != "" {
					want, condition = v1alpha1.ParentPaused, "Unknown Paused: paused "+tc.until
				}
				if state.State != want || tc.until != "" && state.Message != "paused "+tc.until {
					t.Errorf("%s: the state is %s, %q", tc.reason, state.State, state.Message)
				}
				if got := k.condition(); got != condition {
					t.Errorf("%s: the condition is %q, want %q", tc.reason, got, condition)
				}
				if sent := len(k.server.requests()); sent != 1 {
					t.Errorf("%s: %d requests, want that of the condition: %v", tc.reason, sent, k.server.requests())
				}
				told := false
				k.told.Range(func(reason, message any) bool {
					told = true
					if reason != tc.event || reason == "Paused" && !strings.HasPrefix(message.(string), `Paused by the field manager "kubectl-annotate" `+tc.until) {
						t.Errorf("%s: there is an event %s: %s", tc.reason, reason, message)
					}
					return true
				})
				if told != (tc.event != "") {
					t.Errorf("%s: there is no event %s", tc.reason, tc.event)
				}
			})
		})
	}
}

func TestAPauseEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		value string
		end   func(k *keeping)
	}{
		"with its time":            {`"2000-01-01T00:10:00Z"`, func(*keeping) { <-time.After(11 * time.Minute) }},
		"when it is taken off":     {`"true"`, func(k *keeping) { k.annotate("") }},
		"with an earlier time":     {`"2000-01-01T09:00:00Z"`, func(k *keeping) { k.annotate(pausedBy(`"2000-01-01T00:10:00Z"`)); <-time.After(11 * time.Minute) }},
		"with a time that is over": {`"true"`, func(k *keeping) { k.annotate(pausedBy(`"1999-01-01T00:00:00Z"`)) }},
		"when it has no meaning":   {`"true"`, func(k *keeping) { k.annotate(pausedBy(`"no"`)) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeepingWith(t, "example.com", []string{"replicas", "conditions"}, pausedBy(tc.value), func(*reconciler.Sync) error { return nil })
				<-time.After(time.Minute)
				if n := k.syncs.Load(); n != 0 {
					t.Fatalf("%d syncs during the pause", n)
				}
				if health := k.controller.Health(); health.Unsynced != 0 {
					t.Error("the start waits for the end of the pause")
				}
				tc.end(k)
				synctest.Wait()
				if n := k.syncs.Load(); n != 1 {
					t.Errorf("%d syncs after the pause", n)
				}
				if got := k.condition(); got != "True Synced: the last sync ended well" {
					t.Errorf("the condition is %q", got)
				}
			})
		})
	}
}

func TestATimeThatIsOverWhenItIsSetIsNoPause(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after string
		told          bool
	}{
		"set":                {"", pausedBy(`"1999-01-01T00:00:00Z"`), true},
		"in place of a time": {pausedBy(`"2000-01-01T00:10:00Z"`), pausedBy(`"1999-01-01T00:00:00Z"`), true},
		"set before":         {pausedBy(`"1999-01-01T00:00:00Z"`), pausedBy(`"1999-01-01T00:00:00Z"`), false},
		"over by itself":     {pausedBy(`"2000-01-01T00:10:00Z"`), pausedBy(`"2000-01-01T00:10:00Z"`), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeepingWith(t, "example.com", []string{"replicas", "conditions"}, tc.before, func(*reconciler.Sync) error { return nil })
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { k.shared.Recorder.Run(ctx) })
				defer running.Wait()
				defer stop()
				k.annotate(tc.after)
				<-time.After(time.Hour)
				k.annotate(tc.after)
				<-time.After(time.Minute)
				text, told := k.told.Load("NotPaused")
				if told != tc.told || told && !strings.Contains(text.(string), "its time is over") {
					t.Errorf("there is an event: %t, want %t: %v", told, tc.told, text)
				}
			})
		})
	}
}
