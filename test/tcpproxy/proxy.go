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

package tcpproxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"testing"
)

// Proxy passes the connections to its address on to others. Its methods may be used concurrently.
type Proxy struct {
	listener net.Listener
	targets  []string
	running  sync.WaitGroup

	mu sync.Mutex
	// opened counts the connections that were accepted.
	opened int
	// connected is closed while bytes are carried.
	connected chan struct{}
	// conns are the open ones of both sides, to be closed at the end.
	conns map[net.Conn]bool
	ended bool
}

// Start starts a proxy for targets, each a host and a port, which have the connections in turn. It ends with the test, and every connection with
// it.
func Start(t testing.TB, targets ...string) *Proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening for connections to %s: %v", targets, err)
	}
	p := &Proxy{listener: listener, targets: targets, connected: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.connected)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p.running.Go(func() { p.accept(ctx) })
	t.Cleanup(func() {
		cancel()
		p.end()
		p.running.Wait()
	})
	return p
}

// StartURL starts a proxy for the host and port of a URL, and returns it with the same URL at its own address.
func StartURL(t testing.TB, address string) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("reading the address to stand before: %v", err)
	}
	p := Start(t, u.Host)
	u.Host = p.listener.Addr().String()
	return p, u.String()
}

// Port is where it listens, on 127.0.0.1.
func (p *Proxy) Port() int {
	return int(netip.MustParseAddrPort(p.listener.Addr().String()).Port())
}

// Opened returns how many connections were accepted so far.
func (p *Proxy) Opened() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// Cut stops all traffic until Restore. No side is told: what was sent waits, as it does where the network drops packets and TCP sends them
// again, and a new connection hears nothing. It must not be called twice in a row.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connected = make(chan struct{})
}

// Restore ends what Cut began: what waits is carried, in order.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.connected)
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.targets[p.opened%len(p.targets)]
		p.opened++
		p.mu.Unlock()
		p.keep(client)
		p.running.Go(func() { p.connect(ctx, client, target) })
	}
}

func (p *Proxy) connect(ctx context.Context, client net.Conn, target string) {
	defer p.forget(client)
	p.await(ctx)
	server, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	p.keep(server)
	defer p.forget(server)
	var there sync.WaitGroup
	there.Go(func() { p.carry(ctx, client, server) })
	p.carry(ctx, server, client)
	there.Wait()
}

// carry carries what one side sends, until it has nothing more to send.
func (p *Proxy) carry(ctx context.Context, from, to net.Conn) {
	defer to.Close() //nolint:errcheck // Nobody can be told.
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.await(ctx)
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			if err != io.EOF { //nolint:errorlint // A connection returns this one.
				_ = from.Close()
			}
			return
		}
	}
}

// await waits while the two sides are cut off from each other.
func (p *Proxy) await(ctx context.Context) {
	p.mu.Lock()
	connected := p.connected
	p.mu.Unlock()
	select {
	case <-connected:
	case <-ctx.Done():
	}
}

// keep notes a connection, which ends with the proxy.
func (p *Proxy) keep(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = true
	if p.ended {
		_ = conn.Close()
	}
}

func (p *Proxy) forget(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

func (p *Proxy) end() {
	_ = p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for conn := range p.conns {
		_ = conn.Close()
	}
}
