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
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen starts a server on a free port of 127.0.0.1 that counts its connections, and returns its port.
func listen(t *testing.T) (port int, connections *atomic.Int32) {
	t.Helper()
	connections = &atomic.Int32{}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port, connections
}

// names is a DNS server that answers every question for an IPv4 address with one of the addresses after the other, and the last one from
// then on.
type names struct {
	addresses []netip.Addr
	asked     atomic.Int32
	// only is the one name that exists. Empty: all do.
	only string
}

// resolver returns a resolver that asks n.
func (n *names) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	go func() {
		defer close(ended)
		buffer := make([]byte, 1<<10)
		for {
			size, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			if _, err := socket.WriteTo(n.answer(buffer[:size]), from); err != nil {
				return
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", socket.LocalAddr().String())
	}}
}

// answer returns the response to a question (RFC 1035 §4.1).
func (n *names) answer(question []byte) []byte {
	const header = 12
	end := header
	var labels []string
	for question[end] != 0 {
		next := end + int(question[end]) + 1
		labels = append(labels, string(question[end+1:next]))
		end = next
	}
	end += 5 // the last label, type and class
	response := append([]byte(nil), question[:end]...)
	copy(response[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
	if n.only != "" && n.only != strings.Join(labels, ".") {
		response[3] = 0x83 // there is no such name
		return response
	}
	if binary.BigEndian.Uint16(question[end-4:]) != 1 {
		return response // no IPv6 address
	}
	i := min(int(n.asked.Add(1)), len(n.addresses)) - 1
	response[7] = 1
	response = append(response, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
	return append(response, n.addresses[i].AsSlice()...)
}

// TestWhatIsDialed connects by name and by address. What is checked is the address to which the connection goes.
func TestWhatIsDialed(t *testing.T) {
	for name, tc := range map[string]struct {
		options Options
		// isServer says that the policy knows the port for this server's.
		isServer bool
		// host is a name that leads to an address; or an address, if that is empty.
		host, leadsTo string
		// refused is the message; empty: the connection is made.
		refused string
	}{
		"address of this machine": {Options{AllowLoopback: true}, false, "127.0.0.1", "", ""},
		"name of this machine":    {Options{AllowLoopback: true}, false, "hook.example.com", "127.0.0.1", ""},
		"loopback in a Pod":       {Options{}, false, "127.0.0.1", "", "127.0.0.1 is a loopback address, where only this server's own Pod is"},
		"name for loopback in a Pod": {
			Options{},
			false, "hook.example.com", "127.8.0.1",
			"hook.example.com leads to 127.8.0.1, which is a loopback address, where only this server's own Pod is",
		},
		"loopback as IPv6":             {Options{}, false, "::1", "", "::1 is a loopback address, where only this server's own Pod is"},
		"loopback as a mapped address": {Options{}, false, "::ffff:127.0.0.1", "", "::ffff:127.0.0.1 leads to 127.0.0.1, which is a loopback address, where only this server's own Pod is"},
		"metadata service": {
			Options{AllowLoopback: true},
			false, "169.254.169.254", "",
			"169.254.169.254 is a link-local address, where clouds serve credentials of nodes",
		},
		"name for the metadata service": {
			Options{AllowLoopback: true},
			false, "hook.example.com", "169.254.169.254",
			"hook.example.com leads to 169.254.169.254, which is a link-local address, where clouds serve credentials of nodes",
		},
		"metadata service as a mapped address": {
			Options{AllowLoopback: true},
			false, "::ffff:169.254.169.254", "",
			"::ffff:169.254.169.254 leads to 169.254.169.254, which is a link-local address, where clouds serve credentials of nodes",
		},
		"metadata service through a translator": {
			Options{AllowLoopback: true},
			false, "64:ff9b::a9fe:a9fe", "",
			"64:ff9b::a9fe:a9fe leads to 169.254.169.254, which is a link-local address, where clouds serve credentials of nodes",
		},
		"link-local IPv6": {Options{AllowLoopback: true}, false, "fe80::1%lo", "", "fe80::1%lo is a link-local address, where clouds serve credentials of nodes"},
		"metadata service of EC2 by IPv6": {
			Options{AllowLoopback: true, AllowedHosts: []string{"fd00::/8"}},
			false, "fd00:ec2::254", "",
			"fd00:ec2::254 is the metadata service of EC2, which serves credentials of nodes",
		},
		"unspecified":      {Options{AllowLoopback: true}, false, "0.0.0.0", "", "0.0.0.0 is the unspecified address"},
		"unspecified IPv6": {Options{AllowLoopback: true}, false, "::", "", ":: is the unspecified address"},
		"multicast":        {Options{AllowLoopback: true}, false, "ff02::1%lo", "", "ff02::1%lo is a multicast address"},
		"this server": {
			Options{AllowLoopback: true}, true, "127.0.0.1", "", "127.0.0.1 leads to 127.0.0.1:PORT, which is this server itself",
		},
		"allowed network does not allow a link-local address": {
			Options{AllowLoopback: true, AllowedHosts: []string{"169.254.0.0/16"}},
			false, "169.254.169.254", "",
			"169.254.169.254 is a link-local address, where clouds serve credentials of nodes",
		},
		"allowed name":            {Options{AllowLoopback: true, AllowedHosts: []string{"hook.example.com"}}, false, "Hook.Example.com.", "127.0.0.1", ""},
		"below an allowed suffix": {Options{AllowLoopback: true, AllowedHosts: []string{"*.example.com"}}, false, "hook.example.com", "127.0.0.1", ""},
		"in an allowed network":   {Options{AllowLoopback: true, AllowedHosts: []string{"127.0.0.0/8"}}, false, "hook.example.com", "127.0.0.1", ""},
		"not an allowed name": {
			Options{AllowLoopback: true, AllowedHosts: []string{"hook.example.com", ".hooks"}},
			false, "evilhooks.example", "127.0.0.1",
			"evilhooks.example is not among the allowed hosts",
		},
		"an address for an allowed name": {
			Options{AllowLoopback: true, AllowedHosts: []string{"hook.example.com"}}, false, "127.0.0.1", "", "127.0.0.1 is not among the allowed hosts",
		},
		"not in an allowed network": {
			Options{AllowLoopback: true, AllowedHosts: []string{"10.0.0.0/8"}},
			false, "hook.example.com", "127.0.0.1",
			"hook.example.com leads to 127.0.0.1, which is not among the allowed hosts",
		},
		"an allowed name that leads to a refused address": {
			Options{AllowedHosts: []string{"hook.example.com"}},
			false, "hook.example.com", "169.254.1.1",
			"hook.example.com leads to 169.254.1.1, which is a link-local address, where clouds serve credentials of nodes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			port, connections := listen(t)
			if tc.isServer {
				tc.options.ServerPort = port
				tc.refused = strings.ReplaceAll(tc.refused, "PORT", strconv.Itoa(port))
			}
			p, err := New(tc.options)
			if err != nil {
				t.Fatal(err)
			}
			if tc.leadsTo != "" {
				p.resolver = (&names{addresses: []netip.Addr{netip.MustParseAddr(tc.leadsTo)}}).resolver(t)
			}
			connection, err := p.DialContext(t.Context(), "tcp", net.JoinHostPort(tc.host, strconv.Itoa(port)))
			if err == nil {
				defer connection.Close() //nolint:errcheck // it is not used
			}
			if tc.refused == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused, ok := errors.AsType[*RefusedError](err)
			if !ok || refused.Error() != tc.refused {
				t.Fatalf("got  %v\nwant %s", err, tc.refused)
			}
			if connections.Load() > 0 {
				t.Error("a connection was made")
			}
			if tc.leadsTo == "" && len(tc.options.AllowedHosts) == 0 && !tc.isServer {
				if err := p.CheckHost(tc.host); err == nil || err.Error() != tc.refused {
					t.Errorf("behind a proxy: got %v", err)
				}
			}
		})
	}
}

// TestServicesOfAnAllowedNamespace looks up hosts that an entry of one label allows, in a namespace whose name is a top-level domain, too.
func TestServicesOfAnAllowedNamespace(t *testing.T) {
	for name, tc := range map[string]struct {
		allowed []string
		host    string
		// exists is the one name that the DNS knows.
		exists string
		// failed is a part of the error. Empty: the connection is made.
		failed string
	}{
		"the Service":                         {[]string{".dev"}, "web.dev", "web.dev.svc", ""},
		"the Service with svc":                {[]string{".dev"}, "web.dev.svc", "web.dev.svc", ""},
		"a dot at the end, and upper case":    {[]string{".dev"}, "Web.dev.", "web.dev.svc", ""},
		"a public name of no Service":         {[]string{".dev"}, "evil.dev", "evil.dev", "no such host"},
		"the same in upper case":              {[]string{"*.DEV"}, "EVIL.Dev.", "EVIL.Dev", "no such host"},
		"a public name in an allowed network": {[]string{".dev", "10.0.0.0/8"}, "evil.dev", "evil.dev", "no such host"},
		"a public name below":                 {[]string{".dev"}, "a.evil.dev", "a.evil.dev", "is not among the allowed hosts"},
		"no name of a Service":                {[]string{".dev"}, "e_vil.dev", "e_vil.dev", "is not among the allowed hosts"},
		"a name that is allowed by itself":    {[]string{".dev", "hook.dev"}, "hook.dev", "hook.dev", ""},
		"a suffix of several labels":          {[]string{".dev", ".hooks.dev"}, "a.hooks.dev", "a.hooks.dev", ""},
		"svc below a suffix of several ones":  {[]string{".hooks.svc"}, "web.hooks.svc", "web.hooks.svc", ""},
	} {
		t.Run(name, func(t *testing.T) {
			port, connections := listen(t)
			p, err := New(Options{AllowLoopback: true, AllowedHosts: tc.allowed})
			if err != nil {
				t.Fatal(err)
			}
			p.resolver = (&names{addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, only: tc.exists}).resolver(t)
			connection, err := p.DialContext(t.Context(), "tcp", net.JoinHostPort(tc.host, strconv.Itoa(port)))
			if err == nil {
				defer connection.Close() //nolint:errcheck // it is not used
			}
			if tc.failed == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.failed) {
				t.Errorf("got %v, want %s", err, tc.failed)
			}
			if connections.Load() > 0 {
				t.Error("a connection was made")
			}
		})
	}
}

// TestServicesAreCalledByTheNameInTheURL: hooks and their certificates know the name that the controller names.
func TestServicesAreCalledByTheNameInTheURL(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := w.Write([]byte(r.Host + " " + r.TLS.ServerName)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	p, err := New(Options{AllowLoopback: true, AllowedHosts: []string{".hooks"}})
	if err != nil {
		t.Fatal(err)
	}
	p.resolver = (&names{addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, only: "web.hooks.svc"}).resolver(t)
	transport := &http.Transport{DialContext: p.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)
	host := "web.hooks:" + strconv.Itoa(server.Listener.Addr().(*net.TCPAddr).Port)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it is read
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != host+" web.hooks" {
		t.Errorf("got %q, %v", body, err)
	}
}

// TestANameThatLeadsElsewhereLater is about DNS rebinding: a name is harmless when it is looked at first.
func TestANameThatLeadsElsewhereLater(t *testing.T) {
	port, connections := listen(t)
	p, err := New(Options{AllowLoopback: true})
	if err != nil {
		t.Fatal(err)
	}
	p.resolver = (&names{addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254")}}).resolver(t)
	address := net.JoinHostPort("hook.example.com", strconv.Itoa(port))
	first, err := p.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close() //nolint:errcheck // it is not used
	for range 3 {
		if _, err := p.DialContext(t.Context(), "tcp", address); !isRefused(err) {
			t.Errorf("got %v, want a refusal", err)
		}
	}
	if n := connections.Load(); n > 1 {
		t.Errorf("%d connections", n)
	}
}

func isRefused(err error) bool {
	_, ok := errors.AsType[*RefusedError](err)
	return ok
}

// TestTheAddressesOfThisServer refuses its port at the addresses of its interfaces, and no other port there.
func TestTheAddressesOfThisServer(t *testing.T) {
	p := &Policy{serverPort: 10250, allowLoopback: true}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		network, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		address, ok := netip.AddrFromSlice(network.IP)
		if !ok {
			t.Fatalf("%v is no address", network.IP)
		}
		address = address.Unmap()
		if err := p.check("h", netip.AddrPortFrom(address, 10250), true); !isRefused(err) {
			t.Errorf("%s: got %v, want a refusal", address, err)
		}
		if err := p.check("h", netip.AddrPortFrom(address, 10251), true); err != nil && !address.IsLinkLocalUnicast() {
			t.Errorf("%s, another port: %v", address, err)
		}
	}
	if err := p.check("h", netip.MustParseAddrPort("192.0.2.1:10250"), true); err != nil {
		t.Errorf("the port at another machine: %v", err)
	}
}

func TestThePolicyOfNil(t *testing.T) {
	port, _ := listen(t)
	var p *Policy
	connection, err := p.DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	if err := connection.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.DialContext(t.Context(), "tcp", "169.254.169.254:80"); !isRefused(err) {
		t.Errorf("got %v, want a refusal", err)
	}
	if err := p.CheckHost("hook.example.com"); err != nil {
		t.Error(err)
	}
}
