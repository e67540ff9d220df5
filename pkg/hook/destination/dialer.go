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

package destination

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// keepAlive is the time between probes of an idle connection.
const keepAlive = 15 * time.Second

// DialContext connects to an address, host and port, as [net.Dialer.DialContext] does, unless the policy refuses it. A name that leads to
// several addresses is connected to one that is not refused; the error is that of the first one otherwise. What is allowed as a Service of
// a namespace is looked up as such, as NAME.NAMESPACE.svc. A refusal wraps a [RefusedError].
func (p *Policy) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	named := p.named(host)
	if !named {
		if service := p.service(host); service != "" {
			named, address = true, net.JoinHostPort(service, port)
		}
	}
	if !named && len(p.networks) == 0 {
		return nil, notAllowed(host, "")
	}
	dialer := net.Dialer{KeepAlive: keepAlive}
	if p != nil {
		dialer.Resolver = p.resolver
	}
	// What is checked is the address to which the socket is about to connect.
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("checking the address %s: %w", address, err)
		}
		return p.check(host, to, named)
	}
	return dialer.DialContext(ctx, network, address) //nolint:wrapcheck // it is a dialer's error, as callers of a dialer expect
}

// Direct connects as a policy does that refuses nothing: to the proxy that an operator has chosen.
func Direct(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{KeepAlive: keepAlive}).DialContext(ctx, network, address) //nolint:wrapcheck // as above
}
