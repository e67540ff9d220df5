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
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/origin"
)

// alertPatience is how long a server may take to send an alert after the handshake.
const alertPatience = time.Second

// closed reports whether the other side closed the connection. A write returns net.ErrClosed after a read has noticed it.
func closed(err error) bool {
	for _, sign := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, sign) {
			return true
		}
	}
	return false
}

// afterHandshake returns the reason of a connection that a hook closed before it returned. A TLS 1.3 client has finished its
// handshake before the server verifies its certificate (RFC 8446 §2), so writing the request may fail before the server's alert
// is read, or may not: without a second look, the same cause would have one message now and another one next time.
func (c *Client) afterHandshake(ctx context.Context, s *session, request *http.Request, err error) error {
	if request.URL.Scheme != "https" || !closed(err) {
		return err
	}
	if proxy, errProxy := s.transport.Proxy(request); errProxy != nil || proxy != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, alertPatience)
	defer cancel()
	if alert, ok := errors.AsType[*net.OpError](s.readAlert(ctx, request.URL)); ok && alert.Op == "remote error" {
		return alert
	}
	return err
}

// readAlert connects anew and returns the error of the handshake, or of the first byte that is read after it.
func (s *session) readAlert(ctx context.Context, u *url.URL) error {
	plain, err := s.transport.DialContext(ctx, "tcp", origin.Address(u))
	if err != nil {
		return err //nolint:wrapcheck // the caller looks at it only
	}
	config := s.transport.TLSClientConfig.Clone()
	config.ServerName = u.Hostname()
	connection := tls.Client(plain, config)
	defer connection.Close() //nolint:errcheck // nothing depends on it
	if err := connection.HandshakeContext(ctx); err != nil {
		return err //nolint:wrapcheck // as above
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := connection.SetReadDeadline(deadline); err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	_, err = connection.Read(make([]byte, 1))
	return err //nolint:wrapcheck // as above
}
