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
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

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
