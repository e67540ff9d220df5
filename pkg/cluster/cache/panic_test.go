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

package cache

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// panicking is a body that panics.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("a hole in the parser") }
func (panicking) Close() error             { return nil }

// onePanic is a transport that makes the first response to lists, or to watches, panic while it is read.
type onePanic struct {
	next  http.RoundTripper
	watch bool
	done  atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (p *onePanic) RoundTrip(r *http.Request) (*http.Response, error) {
	if watch := r.URL.Query().Get("watch") != ""; watch == p.watch && p.done.CompareAndSwap(false, true) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: panicking{}, Request: r}, nil
	}
	return p.next.RoundTrip(r)
}

// onePod has a pod in the list, and another in the watch.
func onePod(t *testing.T) *apiServer {
	t.Helper()
	return &apiServer{
		t: t,
		list: func(*http.Request) (int, string) {
			return http.StatusOK, fmt.Sprintf(listOf, "5", "", fmt.Sprintf(item, "a", "1", "u1"))
		},
		watch: func(r *http.Request) (int, string, func(func(string))) {
			return http.StatusOK, "", func(send func(string)) {
				send(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","resourceVersion":"6","uid":"u2"}}}`)
				<-r.Context().Done()
			}
		},
	}
}

// TestAPanicWhileReadingFailsTheRequestOnly would end the process, for client-go reads on goroutines of its own.
func TestAPanicWhileReadingFailsTheRequestOnly(t *testing.T) {
	for name, watch := range map[string]bool{"list": false, "watch": true} {
		t.Run(name, func(t *testing.T) {
			failing := &onePanic{watch: watch}
			i := onePod(t).run(func(next http.RoundTripper) http.RoundTripper {
				failing.next = next
				return failing
			}).Acquire(pods())
			defer i.Release()
			if !watch {
				<-i.Failed()
			}
			eventually(t, "both pods", func() bool { return failing.done.Load() && i.Len() == 2 && i.Err() == nil })
		})
	}
}

// TestAPanicOfAnInformerIsItsErrorUntilItRunsAgain breaks the store, in place of an unknown bug.
func TestAPanicOfAnInformerIsItsErrorUntilItRunsAgain(t *testing.T) {
	s := onePod(t)
	c, err := New(Options{Config: s.config()})
	if err != nil {
		t.Fatal(err)
	}
	i := c.Acquire(pods())
	defer i.Release()
	whole := i.store
	i.store = nil
	s.start(c)
	<-i.Failed()
	eventually(t, "the error", func() bool { return i.Err() != nil && strings.Contains(i.Err().Error(), "panic while watching") })
	i.deliver.Lock()
	i.store = whole
	i.deliver.Unlock()
	select {
	case <-i.Synced():
	case <-time.After(30 * time.Second):
		t.Fatal("the informer did not start again")
	}
	eventually(t, "no error", func() bool { return i.Err() == nil })
}

func TestAPanicOfAnObserverStopsNothing(t *testing.T) {
	i := newInformer(nil, Query{})
	broken := i.Observe(func(string, Event) { panic("an observer") })
	broken.Wake()
	defer broken.Close()
	seen := ""
	observer := i.Observe(func(version string, _ Event) { seen = version })
	observer.Wake()
	defer observer.Close()
	if err := i.Bookmark("7"); err != nil || seen != "7" {
		t.Errorf("the next observer saw %q, error %v", seen, err)
	}
}

// TestWhatAHandlerMissedByAPanicIsRepeated lets changes happen between the panic and the next bookmark.
func TestWhatAHandlerMissedByAPanicIsRepeated(t *testing.T) {
	at := func(uid, version string) *object.Object { return spec{name: "a", uid: uid, version: version}.object(t) }
	for name, tc := range map[string]struct {
		missed, meanwhile func(i *Informer) error
		want              []string
	}{
		"Update": {func(i *Informer) error { return i.Update(at("u1", "2")) }, nil, []string{"updated a2 from 1"}},
		"UpdateAndAnother": {
			func(i *Informer) error { return i.Update(at("u1", "2")) }, func(i *Informer) error { return i.Update(at("u1", "3")) },
			[]string{"updated a3 from 2", "updated a3 from 1"},
		},
		"UpdateOfWhatIsGone": {
			func(i *Informer) error { return i.Update(at("u1", "2")) }, func(i *Informer) error { return i.Delete(at("u1", "3")) },
			[]string{"deleted a3", "deleted a1"},
		},
		"Deletion": {func(i *Informer) error { return i.Delete(at("u1", "2")) }, nil, []string{"deleted a2"}},
		"DeletionOfWhatIsReplaced": {
			func(i *Informer) error { return i.Delete(at("u1", "2")) }, func(i *Informer) error { return i.Add(at("u2", "3")) },
			[]string{"added a3", "deleted a2", "added a3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInformer(nil, Query{})
			r := &recorder{}
			broken := false
			cancel := i.Subscribe(func(e Event) {
				if broken {
					panic("broken")
				}
				r.handle(e)
			})
			do := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			do(i.Add(at("u1", "1")))
			r.expect(t, "added a1")
			before := recovery.Count()
			broken = true
			do(tc.missed(i))
			do(i.Bookmark("10"))
			if got := recovery.Count() - before; got != 2 {
				t.Errorf("counted %d panics, want that of the event and that of its repetition", got)
			}
			broken = false
			if tc.meanwhile != nil {
				do(tc.meanwhile(i))
			}
			if i.Err() == nil || !strings.Contains(i.Err().Error(), "panic while handling an event of the cache: broken") {
				t.Errorf("the error is %v, want the panic", i.Err())
			}
			do(i.Bookmark("11"))
			r.expect(t, tc.want...)
			do(i.Bookmark("12"))
			r.expect(t)
			if i.Err() != nil {
				t.Errorf("the error is %v after the handler ran", i.Err())
			}
			broken = true
			do(i.Add(spec{name: "b", uid: "b", version: "13"}.object(t)))
			cancel()
			if i.Err() != nil {
				t.Errorf("the error is %v after the handler's end", i.Err())
			}
		})
	}
}

func TestThatAHandlerMissesAChangeIsToldWhenItBeginsAndEnds(t *testing.T) {
	i := newInformer(nil, Query{})
	var told []bool
	defer i.NotifyErr(func() { told = append(told, i.Err() != nil) })()
	broken := true
	defer i.Subscribe(func(Event) {
		if broken {
			panic("broken")
		}
	})()
	add := func(name string) {
		t.Helper()
		if err := i.Add(spec{name: name, uid: name, version: "1"}.object(t)); err != nil {
			t.Fatal(err)
		}
	}
	add("a")
	add("b")
	broken = false
	if err := i.Bookmark("2"); err != nil {
		t.Fatal(err)
	}
	add("c")
	if want := []bool{true, false}; !slices.Equal(told, want) {
		t.Errorf("it was told that there is an error: %v, want %v", told, want)
	}
}

var _ io.ReadCloser = panicking{}
