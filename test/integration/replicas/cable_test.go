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

package replicas

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// A cable carries the connections to one address. While it is cut nothing arrives at either end, and no end is told: what was sent waits,
// as it does where the network drops packets and TCP sends them again.
type cable struct {
	net.Listener

	to  string
	all sync.WaitGroup

	mu    sync.Mutex
	ended bool
	// whole is closed while the cable is whole.
	whole chan struct{}
	conns []net.Conn
}

// newCable lays a cable to an address, and removes it when the test ends.
func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{Listener: l, to: to, whole: make(chan struct{})}
	close(c.whole)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c.all.Go(func() { c.accept(ctx) })
	t.Cleanup(func() {
		cancel()
		c.end()
		c.all.Wait()
	})
	return c
}

// cutURL lays a cable to the host of a URL. It returns the URL of the other end.
func cutURL(t *testing.T, text string) (*cable, string) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c := newCable(t, u.Host)
	u.Host = c.Addr().String()
	return c, u.String()
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = make(chan struct{})
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.whole)
}

// pass waits until the cable is whole.
func (c *cable) pass(ctx context.Context) {
	c.mu.Lock()
	whole := c.whole
	c.mu.Unlock()
	select {
	case <-whole:
	case <-ctx.Done():
	}
}

func (c *cable) end() {
	_ = c.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// keep notes a connection, which ends with the cable.
func (c *cable) keep(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
	if c.ended {
		_ = conn.Close()
	}
}

func (c *cable) accept(ctx context.Context) {
	for {
		near, err := c.Accept()
		if err != nil {
			return
		}
		c.keep(near)
		c.all.Go(func() { c.connect(ctx, near) })
	}
}

func (c *cable) connect(ctx context.Context, near net.Conn) {
	c.pass(ctx)
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.to)
	if err != nil {
		_ = near.Close()
		return
	}
	c.keep(far)
	c.all.Go(func() { c.carry(ctx, near, far) })
	c.carry(ctx, far, near)
}

// carry carries what one end sends, until it has nothing more to send.
func (c *cable) carry(ctx context.Context, from, to net.Conn) {
	defer to.Close() //nolint:errcheck // Nobody can be told.
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		c.pass(ctx)
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			if err != io.EOF { //nolint:errorlint // A connection returns this one.
				_ = from.Close()
			}
			return
		}
	}
}
