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

package eventrecorder_test

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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
)

// subject returns a reference to an object of that name.
func subject(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}
}

// run runs a recorder against an API server until the test ends.
func run(t *testing.T, write func(*corev1.Event)) *eventrecorder.Recorder {
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
	t.Cleanup(server.Close)
	ctx, stop := context.WithCancel(t.Context())
	r, err := eventrecorder.NewRecorder(ctx, eventrecorder.Options{Config: &rest.Config{Host: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return r
}

// eventually records until the condition holds: events recorded before Run is under way are lost.
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
