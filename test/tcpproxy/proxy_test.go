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

package tcpproxy_test

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/metacontroller/metacontroller-apiserver/test/tcpproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A notary notes the lines that arrive, in their order, and says each again.
type notary struct {
	net.Listener

	mu    sync.Mutex
	lines []string
}

func startNotary(t *testing.T) *notary {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &notary{Listener: listener}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := n.Accept()
			if err != nil {
				return
			}
			running.Go(func() { n.hear(conn) })
		}
	})
	t.Cleanup(func() {
		_ = n.Close()
		running.Wait()
	})
	return n
}

func (n *notary) hear(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // The test has ended.
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		n.mu.Lock()
		n.lines = append(n.lines, lines.Text())
		n.mu.Unlock()
		_, _ = fmt.Fprintln(conn, lines.Text())
	}
}

func (n *notary) heard() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

// A speaker says lines over one connection.
type speaker struct {
	t       *testing.T
	conn    net.Conn
	answers *bufio.Scanner
}

func connect(t *testing.T, address string) speaker {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return speaker{t: t, conn: conn, answers: bufio.NewScanner(conn)}
}

func (s speaker) say(line string) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.conn, line); err != nil {
		s.t.Fatalf("saying %q: %v", line, err)
	}
}

func (s speaker) hears(line string) {
	s.t.Helper()
	if !s.answers.Scan() || s.answers.Text() != line {
		s.t.Fatalf("heard %q, %v, want %q", s.answers.Text(), s.answers.Err(), line)
	}
}

func TestWhatIsSentWhileTheProxyIsCutArrivesAfterItWasRestored(t *testing.T) {
	n := startNotary(t)
	p, address := tcpproxy.StartURL(t, "tcp://"+n.Addr().String())
	before := connect(t, address[len("tcp://"):])
	before.say("one")
	before.hears("one")

	p.Cut()
	before.say("sent while cut")
	during := connect(t, fmt.Sprintf("127.0.0.1:%d", p.Port()))
	during.say("connected while cut")
	direct := connect(t, n.Addr().String())
	direct.say("around it")
	direct.hears("around it")
	if got, want := n.heard(), []string{"one", "around it"}; !slices.Equal(got, want) {
		t.Fatalf("while the proxy was cut the target had heard %q, want %q", got, want)
	}

	p.Restore()
	before.hears("sent while cut")
	during.hears("connected while cut")
	if got := p.Opened(); got != 2 {
		t.Errorf("%d connections were counted, want 2", got)
	}
}

func TestTheEndOfATargetIsTheEndOfItsConnections(t *testing.T) {
	n := startNotary(t)
	s := connect(t, fmt.Sprintf("127.0.0.1:%d", tcpproxy.Start(t, n.Addr().String()).Port()))
	s.say("one")
	s.hears("one")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	// The target listens no more: a new connection is closed at once.
	if later := connect(t, s.conn.RemoteAddr().String()); later.answers.Scan() || later.answers.Err() != nil {
		t.Errorf("heard %q, %v; want the end of the connection", later.answers.Text(), later.answers.Err())
	}
}
