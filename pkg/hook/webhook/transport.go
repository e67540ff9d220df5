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
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/destination"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/origin"
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

// dialer makes a connection to host and port.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newTransport makes connections to one endpoint: as many idle ones as there are workers, HTTP/2 where it is offered. It sets no limits
// in time; the context of the call does.
func newTransport(config *tls.Config, workers int, dial dialer) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
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

// proxy returns the proxy of a request, as the environment says (docs/reference/contract.md#s2.2). The proxy looks up the name of the
// hook itself, so what can be said of the hook's place is said before.
func (c *Client) proxy(r *http.Request) (*url.URL, error) {
	proxy, err := http.ProxyFromEnvironment(r)
	if err == nil && proxy != nil {
		err = c.config.Destinations.CheckHost(r.URL.Hostname())
	}
	return proxy, err //nolint:wrapcheck // the transport passes it on as it is
}

// dial returns what connects to the hook, or to the proxy in front of it. Redirects lead from the URL's scheme, host and port to no other
// place than the same host by https, so that all connections of a client are to one of these or to their proxies.
func (c *Client) dial() dialer {
	places := []*url.URL{c.url}
	if secure := origin.Upgraded(c.url); secure != nil {
		places = append(places, secure)
	}
	var proxies []string
	for _, place := range places {
		if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: place}); err == nil && proxy != nil {
			proxies = append(proxies, origin.Address(proxy))
		}
	}
	switch len(proxies) {
	case 0:
		return c.config.Destinations.DialContext
	case len(places):
		return destination.Direct
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if slices.Contains(proxies, address) {
			return destination.Direct(ctx, network, address)
		}
		return c.config.Destinations.DialContext(ctx, network, address)
	}
}

// maxRedirects is how many redirects are followed, as in Go's default policy.
const maxRedirects = 10

// A redirectError says that a redirect was not followed.
type redirectError struct {
	cause, advice string
}

// Error implements error.
func (e *redirectError) Error() string { return e.cause }

// checkRedirect implements http.Client.CheckRedirect. What a hook returns decides where a redirect leads, and the request has the parent
// and all of its children: it does not leave the place that the controller names.
func (c *Client) checkRedirect(next *http.Request, via []*http.Request) error {
	cause := "the hook redirects to " + Shorten(display(next.URL), maxErrorBody)
	switch {
	case !origin.Keeps(via[len(via)-1].URL, next.URL):
		return &redirectError{
			cause + ", which has another scheme, host or port", "redirects there are never followed; use the final address in the controller",
		}
	case c.config.RefuseRedirects:
		return &redirectError{
			cause, "this server follows no redirects (--webhook-redirects=none); use the final address in the controller",
		}
	case len(via) >= maxRedirects:
		return &redirectError{
			fmt.Sprintf("stopped after %d redirects", maxRedirects), "correct the hook's redirects, or use the final address",
		}
	}
	return nil
}

// measured counts each round trip; a redirect is one more.
type measured struct {
	next   http.RoundTripper
	series *series
}

// RoundTrip implements http.RoundTripper.
func (m *measured) RoundTrip(r *http.Request) (*http.Response, error) {
	m.series.inFlight(1)
	defer m.series.inFlight(-1)
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
	// sent is the room of the request while it is written. It is set before the request is sent.
	sent *reservation
}

func (p *progress) reached() stage { return stage(p.stage.Load()) }

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { p.stage.Store(int32(connecting)) },
		GotConn: func(httptrace.GotConnInfo) { p.stage.Store(int32(waiting)) },
		WroteRequest: func(wrote httptrace.WroteRequestInfo) {
			if wrote.Err == nil { // Otherwise the transport may write it again.
				p.sent.release()
			}
		},
		GotFirstResponseByte: func() { p.stage.Store(int32(reading)) },
		DNSStart:             func(httptrace.DNSStartInfo) { p.series.dnsEvent("dns_start", time.Since(p.start)) },
		DNSDone:              func(httptrace.DNSDoneInfo) { p.series.dnsEvent("dns_done", time.Since(p.start)) },
		TLSHandshakeStart:    func() { p.series.tlsEvent("tls_handshake_start", time.Since(p.start)) },
		TLSHandshakeDone: func(tls.ConnectionState, error) {
			p.series.tlsEvent("tls_handshake_done", time.Since(p.start))
		},
	}
}
