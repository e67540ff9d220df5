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

package events_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
)

// subject returns a reference to an object of that name.
func subject(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns the configuration of an API server that calls write with every event, until the test ends.
func serve(t *testing.T, write func(*corev1.Event)) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e corev1.Event
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Errorf("reading an event: %v", err)
		}
		write(&e)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind":"Event","apiVersion":"v1"}`)
	}))
	transport := &http.Transport{}
	t.Cleanup(server.Close)
	t.Cleanup(transport.CloseIdleConnections)
	return &rest.Config{Host: server.URL, Transport: transport}
}

// run runs a recorder against an API server until the test ends.
func run(t *testing.T, write func(*corev1.Event)) *events.Recorder {
	t.Helper()
	r, err := events.NewRecorder(events.Options{Config: serve(t, write)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return r
}

// eventually records until the condition holds.
func eventually(t *testing.T, recorded func(), holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		recorded()
		return holds(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneObjectDoesNotHoldUpAllOthers(t *testing.T) {
	release := make(chan struct{})
	var held atomic.Bool
	var others sync.Map
	r := run(t, func(e *corev1.Event) {
		if e.InvolvedObject.Name == "slow" {
			held.Store(true)
			<-release
			return
		}
		others.Store(e.InvolvedObject.Name, true)
	})
	defer close(release)
	eventually(t, func() { r.Warning(subject("slow"), "SyncError", "one") }, held.Load)
	// Most of the others have other lanes.
	eventually(t, func() {
		for i := range 20 {
			r.Warning(subject(fmt.Sprintf("other-%d", i)), "SyncError", "two")
		}
	}, func() bool {
		n := 0
		others.Range(func(any, any) bool { n++; return true })
		return n >= 10
	})
}

func TestLongMessagesAreCutBetweenCharacters(t *testing.T) {
	var written atomic.Value
	r := run(t, func(e *corev1.Event) {
		if e.Message != "" { // a patch that counts has none
			written.Store(e.Message)
		}
	})
	eventually(t, func() { r.Warning(subject("a"), "SyncError", "x"+strings.Repeat("ä", 1000)) }, func() bool { return written.Load() != nil })
	got, _ := written.Load().(string)
	if strings.ContainsRune(got, utf8.RuneError) || !strings.HasSuffix(got, "ä…") || len(got) > 1024 {
		t.Errorf("the message has %d bytes and ends with %q", len(got), got[len(got)-8:])
	}
}

func TestEventsOfAControllerNameItAndTheChild(t *testing.T) {
	for name, record := range map[string]func(c *events.Controller, parent, child *corev1.ObjectReference){
		"Warning": func(c *events.Controller, parent, child *corev1.ObjectReference) {
			c.Warning(parent, child, "Reason", "text")
		},
		"Normal": func(c *events.Controller, parent, child *corev1.ObjectReference) {
			c.Normal(parent, child, "Reason", "text")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got atomic.Pointer[corev1.Event]
			r := run(t, func(e *corev1.Event) {
				if e.Message != "" { // a patch that counts has none
					got.CompareAndSwap(nil, e) // Of those that follow, patches have no more than what changed.
				}
			})
			eventually(t, func() { record(r.Of("metacontroller.io/compositecontroller-c", nil), subject("a"), subject("child")) },
				func() bool { return got.Load() != nil })
			e := got.Load()
			if e.Type != name || e.ReportingController != "metacontroller.io/compositecontroller-c" || e.Source.Component != events.Component {
				t.Errorf("the event is of type %s, from %s, component %s", e.Type, e.ReportingController, e.Source.Component)
			}
			if e.InvolvedObject.Name != "a" || e.Related == nil || e.Related.Name != "child" {
				t.Errorf("the event is about %v and %v", e.InvolvedObject, e.Related)
			}
		})
	}
}

// written returns reason and message of what is written when what record records is all there is.
func written(t *testing.T, record func(*events.Recorder)) []string {
	t.Helper()
	var mu sync.Mutex
	var messages []string
	r, err := events.NewRecorder(events.Options{Config: serve(t, func(e *corev1.Event) {
		mu.Lock()
		defer mu.Unlock()
		messages = append(messages, e.Reason+": "+e.Message)
	}), Grace: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	record(r)
	ended, stop := context.WithCancel(t.Context())
	stop()
	r.Run(ended)
	return messages
}

func TestAnOldMessageDoesNotUseUpTheLimitOfANewOne(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		old    func(n int) string
		new    [2]string
		want   string
	}{
		"AnotherMessage": {
			"describe must not show last hour's error.", func(int) string { return "broken" },
			[2]string{"SyncError", "really broken"},
			"SyncError: really broken",
		},
		"AnotherReason": {
			"Nor hide what is wrong besides.", func(int) string { return "broken" },
			[2]string{"ChildFlapping", "broken"},
			"ChildFlapping: broken",
		},
		"AfterManyWithNumbers": {
			"Numbers make no new kind of message; the latest message is that of the combined event.",
			func(n int) string { return fmt.Sprintf("no response after %d ms", n) },
			[2]string{"SyncError", "really broken"},
			": (combined from similar events): really broken", // a patch, which has no reason
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := written(t, func(r *events.Recorder) {
				for n := range 30 {
					r.Warning(subject("a"), "SyncError", tc.old(n))
				}
				r.Warning(subject("a"), tc.new[0], tc.new[1])
			})
			if last := got[len(got)-1]; len(got) != 25+1 || last != tc.want {
				t.Errorf("%d events, the last is %q; want 25 old ones and %q: %s", len(got), last, tc.want, tc.reason)
			}
		})
	}
}

func TestOneKindOfMessageIsLimited(t *testing.T) {
	for name, message := range map[string]func(n int) string{
		"Same":    func(int) string { return "broken" },
		"Number":  func(n int) string { return fmt.Sprintf("try %d failed", n) },
		"Hash":    func(n int) string { return fmt.Sprintf("revision %08x failed", 0xabcdef00+n) },
		"UID":     func(n int) string { return fmt.Sprintf("uid %08x-aaaa-bbbb-cccc-abcdefabcdef", n) },
		"Percent": func(n int) string { return fmt.Sprintf("%d%% done", n) },
	} {
		t.Run(name, func(t *testing.T) {
			got := written(t, func(r *events.Recorder) {
				for n := range 60 {
					r.Warning(subject("a"), "SyncError", message(n))
				}
			})
			if len(got) != 25 {
				t.Errorf("%d events were written, want the burst of 25", len(got))
			}
		})
	}
}

func TestEndlessNewMessagesAreLimited(t *testing.T) {
	word := func(n int) string { return strings.Repeat(string(rune('g'+n%20)), 1+n/20) }
	got := written(t, func(r *events.Recorder) {
		for n := range 500 {
			r.Warning(subject("a"), "SyncError", word(n))
		}
		r.Warning(subject("b"), "SyncError", "another object")
	})
	if len(got) > 16+25+1 {
		t.Errorf("%d events were written, want no more than one for each of 16 kinds and a burst of 25", len(got))
	}
	if got := strings.Join(got, "\n"); !strings.Contains(got, "another object") || !strings.Contains(got, "combined from similar events") {
		t.Errorf("neither may another object suffer, nor is nothing combined:\n%s", got)
	}
}

func TestNormalEventsTakeNoPlaceOfWarnings(t *testing.T) {
	got := written(t, func(r *events.Recorder) {
		for n := range 60 {
			r.Lifecycle(subject("a"), "ChildCreated", "Created "+strings.Repeat("x", n+1))
		}
		r.Warning(subject("a"), "SyncError", "broken")
	})
	if last := got[len(got)-1]; last != "SyncError: broken" {
		t.Errorf("the last event is %q", last)
	}
}

// TestWhatAnswersAWarningNeedsNoBudget has the controllers of other parents use up the budget of Normal events.
func TestWhatAnswersAWarningNeedsNoBudget(t *testing.T) {
	var written atomic.Int32
	r := run(t, func(e *corev1.Event) {
		if e.Reason == events.ReasonSyncRecovered && e.ReportingController == "c" {
			written.Add(1)
		}
	})
	for n := range 500 {
		r.Of("noisy", nil).Normal(&corev1.ObjectReference{Name: fmt.Sprint("noisy-", n), Namespace: "ns"}, nil, "ChildCreated", "Created something")
	}
	r.Of("c", nil).NormalAlways(&corev1.ObjectReference{Name: "quiet", Namespace: "ns"}, events.ReasonSyncRecovered, "Synced again after errors")
	eventually(t, func() {}, func() bool { return written.Load() == 1 })
}

// TestWhatCannotBeRecordedOnAParentIsRecordedOnItsController has an API server that creates nothing in the namespace "gone".
func TestWhatCannotBeRecordedOnAParentIsRecordedOnItsController(t *testing.T) {
	controller := &corev1.ObjectReference{APIVersion: "metacontroller.k8s.io/v1alpha1", Kind: "CompositeController", Name: "c", UID: "uid-c"}
	const terminating = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"it is being terminated","reason":"Forbidden","code":403,
		"details":{"causes":[{"reason":"NamespaceTerminating"}]}}`
	const forbidden = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no right","reason":"Forbidden","code":403}`
	warning := func(r *events.Recorder, p *corev1.ObjectReference) {
		r.Of("c", controller).Warning(p, subject("child"), "SyncError", "broken")
	}
	for name, tc := range map[string]struct {
		reason  string
		refusal string
		record  func(r *events.Recorder, p *corev1.ObjectReference)
		want    string
	}{
		"Warning": {"Nothing is silent.", terminating, warning, "default CompositeController c: SyncError: ConfigMap gone/p: broken"},
		"WithoutARunningController": {
			"A controller that is being deleted has no recorder of its own.", terminating,
			func(r *events.Recorder, p *corev1.ObjectReference) {
				r.WarningOfParent(p, controller, "FinalizeSkipped", "left")
			},
			"default CompositeController c: FinalizeSkipped: ConfigMap gone/p: left",
		},
		"Normal": {
			"What happened to an object that goes is of no interest.", terminating,
			func(r *events.Recorder, p *corev1.ObjectReference) {
				r.Of("c", controller).Normal(p, nil, "ChildDeleted", "Deleted")
			}, "",
		},
		"RefusedForAnotherReason": {"It would be refused there as well.", forbidden, warning, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var got []string
			refused := make(chan struct{}, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if strings.Contains(r.URL.Path, "/namespaces/gone/") {
					w.WriteHeader(http.StatusForbidden)
					_, _ = fmt.Fprint(w, tc.refusal)
					refused <- struct{}{}
					return
				}
				var e corev1.Event
				if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
					t.Errorf("reading an event: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprintf("%s %s %s: %s: %s", e.Namespace, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message))
				if e.Related == nil || e.Related.Name != "p" {
					t.Errorf("the event is related to %v, want the parent", e.Related)
				}
				_, _ = fmt.Fprint(w, `{"kind":"Event","apiVersion":"v1"}`)
			}))
			t.Cleanup(server.Close)
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			r, err := events.NewRecorder(events.Options{Config: &rest.Config{Host: server.URL, Transport: transport}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { r.Run(ctx) })
			p := subject("p")
			p.Namespace = "gone"
			tc.record(r, p)
			<-refused
			eventually(t, func() {}, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return tc.want == "" || len(got) > 0
			})
			stop()
			running.Wait()
			if all := strings.Join(got, "; "); all != tc.want {
				t.Errorf("%s Recorded is %q, want %q", tc.reason, all, tc.want)
			}
		})
	}
}

func TestTheEndIsNoError(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	started, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r, err := events.NewRecorder(events.Options{Grace: time.Millisecond, Config: serve(t, func(*corev1.Event) {
		once.Do(func() { close(started) })
		<-release
	})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(release) }) // before the server is closed, which waits
	r.Warning(subject("a"), "SyncError", "one")
	r.Warning(subject("a"), "SyncError", "two")
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	<-started
	stop()
	running.Wait()
	sink, ok := logger.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatal("the log cannot be read")
	}
	for _, entry := range sink.GetBuffer().Data() {
		if entry.Type == ktesting.LogError {
			t.Errorf("an ordinary end is logged as an error: %s", entry.Message)
		}
	}
}

func TestShortenCutsNoCharacterInTwo(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		limit int
		want  string
	}{
		"empty":                     {"", 3, ""},
		"as long as the limit":      {"abc", 3, "abc"},
		"longer":                    {"abcd", 3, "abc…"},
		"a character at the limit":  {"abü", 3, "ab…"},
		"a character of that ends":  {"aüb", 3, "aü…"},
		"nothing fits but ellipsis": {"€uro", 1, "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := events.Shorten(c.text, c.limit); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
