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

package webhook

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

const (
	// maxHeaderBytes limits the headers of a response.
	maxHeaderBytes = 1 << 20
	// idleTimeout is the time after which unused connections are closed.
	idleTimeout = 90 * time.Second
	// pingAfter is how long an HTTP/2 connection may be silent before it is tested, and pingTimeout how long the test may
	// take. All calls share one such connection: one that died silently would fail them all.
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second
	// writeBuffer has room for most requests with their headers, so that each is one write to the connection.
	writeBuffer = 16 << 10
)

// session is the connections to the hook under one state of TLS settings. Its mutable fields are guarded by Client.mu.
type session struct {
	tlsVersion string
	transport  *http.Transport
	client     *http.Client
	calls      int
	retired    bool
}

// newTransport makes connections to one endpoint: as many idle ones as there are workers, HTTP/2 where it is offered, proxies
// as the environment says (docs/reference/contract.md#s2.2). It sets no limits in time; the context of the call does.
func newTransport(config *tls.Config, workers int) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:        config,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		MaxIdleConns:           workers,
		MaxIdleConnsPerHost:    workers,
		IdleConnTimeout:        idleTimeout,
		WriteBufferSize:        writeBuffer,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// measured counts each round trip; a redirect is one more.
type measured struct {
	next   http.RoundTripper
	series *series
}

// RoundTrip implements http.RoundTripper.
func (m *measured) RoundTrip(r *http.Request) (*http.Response, error) {
	m.series.started()
	defer m.series.finished()
	start := time.Now()
	response, err := m.next.RoundTrip(r)
	if err == nil {
		m.series.returned(response.StatusCode, r.Method, time.Since(start))
	}
	return response, err //nolint:wrapcheck // a RoundTripper passes errors on as they are
}

// progress follows one call. Its methods are called from goroutines of the transport, even after the call has ended.
type progress struct {
	series *series
	start  time.Time
	stage  atomic.Int32
}

func (p *progress) reached() stage { return stage(p.stage.Load()) }

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:              func(string) { p.stage.Store(int32(connecting)) },
		GotConn:              func(httptrace.GotConnInfo) { p.stage.Store(int32(waiting)) },
		GotFirstResponseByte: func() { p.stage.Store(int32(reading)) },
		DNSStart:             func(httptrace.DNSStartInfo) { p.series.dnsEvent("dns_start", time.Since(p.start)) },
		DNSDone:              func(httptrace.DNSDoneInfo) { p.series.dnsEvent("dns_done", time.Since(p.start)) },
		TLSHandshakeStart:    func() { p.series.tlsEvent("tls_handshake_start", time.Since(p.start)) },
		TLSHandshakeDone: func(tls.ConnectionState, error) {
			p.series.tlsEvent("tls_handshake_done", time.Since(p.start))
		},
	}
}
