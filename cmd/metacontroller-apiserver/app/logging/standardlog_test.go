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

package logging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is a buffer that goroutines of net/http write to.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p) //nolint:wrapcheck // it does not fail
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestWhatFollowsAResponseIsNotLogged lets a server send more than its response, of which net/http logs the rest.
func TestWhatFollowsAResponseIsNotLogged(t *testing.T) {
	logged, before, flags := &lines{}, log.Writer(), log.Flags()
	log.SetOutput(logged)
	ShortenStandardLog()
	t.Cleanup(func() {
		log.SetOutput(before)
		log.SetFlags(flags)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close() //nolint:errcheck // it is meant to break
		_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"+r.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
		if err != nil {
			return false, err
		}
		request.Header.Set("Authorization", "Bearer s3cr3t")
		response, err := server.Client().Do(request)
		if err != nil {
			return false, err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		return strings.Contains(logged.String(), "Unsolicited response"), response.Body.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(logged.String(), "s3cr3t") {
		t.Errorf("the log has %s", logged)
	}
	log.Print("something else starting with a word")
	if !strings.Contains(logged.String(), "something else starting with a word") {
		t.Errorf("other lines are lost: %s", logged)
	}
}

func TestAClientThatGaveUpIsNoErrorOfTheServer(t *testing.T) {
	former := slices.Clone(utilruntime.ErrorHandlers)
	defer func() { utilruntime.ErrorHandlers = former }() //nolint:reassign // As it was.
	LogUnhandledErrors()
	var written bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&written), textlogger.Verbosity(1))))
	utilruntime.HandleErrorWithContext(ctx, fmt.Errorf("writing a response: %w", http.ErrHandlerTimeout), "Unhandled Error")
	utilruntime.HandleErrorWithContext(ctx, errors.New("writing a response: "+http.ErrHandlerTimeout.Error()), "Unhandled Error")
	utilruntime.HandleErrorWithContext(ctx, errors.New("writing a response: "+context.Canceled.Error()), "Unhandled Error")
	utilruntime.HandleErrorWithContext(ctx, errors.New("boom"), "Unhandled Error")
	log := written.String()
	if strings.Contains(log, "writing a response") || !strings.Contains(log, "boom") {
		t.Errorf("the log is %q", log)
	}
	if !strings.Contains(log, "standardlog_test.go") {
		t.Errorf("the log does not name the place of the error: %q", log)
	}
}
