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
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The flags of the server that decide what a policy allows. They are named in messages.
const (
	AllowedHostsFlag  = "--webhook-allowed-hosts"
	AllowLoopbackFlag = "--webhook-allow-loopback"
)

// Options configure a [Policy].
type Options struct {
	// AllowedHosts are the only places where hooks may be: names of hosts, which mean exactly these; suffixes of names, which begin with
	// a dot or with *. and mean the names below, or the Services of a namespace if they have one label; IP addresses; and networks in CIDR
	// notation. Empty: hooks may be anywhere that is not refused. No entry allows what is refused.
	AllowedHosts []string
	// AllowLoopback says that hooks may be at loopback addresses.
	AllowLoopback bool
	// ServerPort is the port of this server, at which no hook can be on this machine. 0: there is none.
	ServerPort int
}

// Policy decides where hooks may be. It is immutable and safe for concurrent use. Nil is the policy of a server outside of a cluster:
// loopback addresses are allowed, and there are no allowed hosts.
type Policy struct {
	restricted    bool
	names         []string
	suffixes      []string
	namespaces    []string
	networks      []netip.Prefix
	allowLoopback bool
	serverPort    uint16
	// resolver looks up names. Nil: the resolver of the system.
	resolver *net.Resolver
}

// New returns a policy. The error names the entry that is not understood.
func New(o Options) (*Policy, error) {
	p := &Policy{restricted: len(o.AllowedHosts) > 0, allowLoopback: o.AllowLoopback, serverPort: uint16(o.ServerPort)} //nolint:gosec // a port
	for _, entry := range o.AllowedHosts {
		if err := p.allow(entry); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// allow adds one of the allowed hosts.
func (p *Policy) allow(entry string) error {
	if network, err := netip.ParsePrefix(entry); err == nil {
		p.networks = append(p.networks, network.Masked())
		return nil
	}
	if address, err := netip.ParseAddr(entry); err == nil && address.Zone() == "" {
		address = address.Unmap()
		p.networks = append(p.networks, netip.PrefixFrom(address, address.BitLen()))
		return nil
	}
	name := canonicalName(strings.TrimPrefix(entry, "*"))
	suffix := strings.HasPrefix(name, ".")
	if wrong := validation.IsDNS1123Subdomain(strings.TrimPrefix(name, ".")); len(wrong) > 0 || strings.HasPrefix(entry, "*") && !suffix {
		return fmt.Errorf("%q is no host name, suffix of host names such as .example.com, IP address or network such as 10.0.0.0/8", entry)
	}
	switch {
	case !suffix:
		p.names = append(p.names, name)
	case strings.LastIndex(name, ".") == 0 && name != serviceDomain:
		p.namespaces = append(p.namespaces, name[1:])
	default:
		p.suffixes = append(p.suffixes, name)
	}
	return nil
}

// serviceDomain is what names of Services end with. No name of the Internet does. As an entry it is a suffix, not a namespace.
const serviceDomain = ".svc"

// canonicalName returns a name as names are compared.
func canonicalName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// CheckHost refuses what can be refused of a host, a name or an IP address, without looking it up. It is for hooks behind a proxy, which
// looks names up itself: a policy with networks only refuses names then, and one that allows a namespace allows those of its Services that
// end with .svc, because the proxy may find the others outside of the cluster. A number that is no IP address in the usual notation is
// refused, because the proxy may take it for one.
func (p *Policy) CheckHost(host string) error {
	sent, err := asSent(host)
	if err != nil {
		return &RefusedError{Host: host, Kind: "no host name"}
	}
	if address, err := netip.ParseAddr(sent); err == nil {
		return p.check(host, netip.AddrPortFrom(address, 0), false)
	}
	if isNumber(sent) {
		return &RefusedError{Host: host, Kind: "a number, which may be any IP address"}
	}
	if p.named(host) {
		return nil
	}
	switch p.service(host) {
	case "":
		return notAllowed(host, "")
	case canonicalName(host):
		return nil
	default:
		return &RefusedError{Host: host, Kind: foundByProxy, Flag: AllowedHostsFlag}
	}
}

// asSent returns a host as a proxy may be sent it, without dots at its end.
func asSent(host string) (string, error) {
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		var err error
		if host, err = idna.Lookup.ToASCII(host); err != nil {
			return "", err //nolint:wrapcheck // The caller says all of it.
		}
	}
	return strings.TrimRight(host, "."), nil
}

// isNumber reports whether a host is numbers and dots: inet_aton(3) reads 2852039166, 0xA9FEA9FE, 0251.254.43518 and 169.254.43518 as IPv4
// addresses. No Service has such a name.
func isNumber(host string) bool {
	for label := range strings.SplitSeq(strings.ToLower(host), ".") {
		digits, isHex := strings.CutPrefix(label, "0x")
		if strings.ContainsFunc(digits, func(r rune) bool { return (r < '0' || r > '9') && (!isHex || r < 'a' || r > 'f') }) {
			return false
		}
	}
	return true
}

// named reports whether the policy allows a host by its name, whatever its address is. It is true where everything is allowed. Services of
// allowed namespaces are not among these hosts.
func (p *Policy) named(host string) bool {
	if p == nil || !p.restricted {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	host = canonicalName(host)
	return slices.Contains(p.names, host) ||
		slices.ContainsFunc(p.suffixes, func(s string) bool { return strings.HasSuffix(host, s) && len(host) > len(s) })
}

// service returns the name under which a host is looked up as a Service of an allowed namespace, or "" if it is none. The name ends with
// .svc, so that no name of the Internet is found, where the namespace is called as a top-level domain.
func (p *Policy) service(host string) string {
	if p == nil {
		return ""
	}
	name, namespace, found := strings.Cut(strings.TrimSuffix(canonicalName(host), serviceDomain), ".")
	if !found || len(validation.IsDNS1123Label(name)) > 0 || !slices.Contains(p.namespaces, namespace) {
		return ""
	}
	return name + "." + namespace + serviceDomain
}

// check refuses the address to which a host leads. A host that is named is allowed by its name.
func (p *Policy) check(host string, to netip.AddrPort, named bool) error {
	address := effective(to.Addr())
	refused := &RefusedError{Host: host, Address: address.String()}
	switch {
	case address.IsLinkLocalUnicast():
		refused.Kind = "a link-local address, where clouds serve credentials of nodes"
	case address.WithZone("") == ec2Metadata:
		refused.Kind = "the metadata service of EC2, which serves credentials of nodes"
	case address.IsUnspecified():
		refused.Kind = "the unspecified address"
	case address.IsMulticast():
		refused.Kind = "a multicast address"
	case p.isServer(address, to.Port()):
		refused.Address, refused.Kind = netip.AddrPortFrom(address, to.Port()).String(), "this server itself"
	case address.IsLoopback() && p != nil && !p.allowLoopback:
		refused.Kind, refused.Flag = "a loopback address, where only this server's own Pod is", AllowLoopbackFlag
	case p != nil && p.restricted && !named && !slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(address) }):
		return notAllowed(host, address.String())
	default:
		return nil
	}
	return refused
}

// notAllowed refuses a host that is none of the allowed ones. The address is empty if it was not looked up.
func notAllowed(host, address string) error {
	return &RefusedError{Host: host, Address: address, Kind: "not among the allowed hosts", Flag: AllowedHostsFlag}
}

// nat64 is the network whose addresses end with an IPv4 address to which a gateway translates them (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96") //nolint:gochecknoglobals // a constant

// ec2Metadata is where EC2 serves credentials of nodes beside 169.254.169.254.
var ec2Metadata = netip.MustParseAddr("fd00:ec2::254") //nolint:gochecknoglobals // a constant

// effective returns the address that is reached in the end: an IPv4 address that is written as an IPv6 address is that IPv4 address.
func effective(address netip.Addr) netip.Addr {
	address = address.Unmap()
	if nat64.Contains(address.WithZone("")) {
		b := address.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return address
}

// isServer reports whether this server listens at an address. Interfaces come and go, so they are read anew.
func (p *Policy) isServer(address netip.Addr, port uint16) bool {
	if p == nil || p.serverPort == 0 || port != p.serverPort {
		return false
	}
	if address.IsLoopback() {
		return true
	}
	own, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		network, ok := a.(*net.IPNet)
		return ok && network.IP.Equal(net.IP(address.AsSlice()))
	})
}

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

// A RefusedError says that no connection was made, because no hook may be at that address.
type RefusedError struct {
	// Host is the name or IP address that was to be called.
	Host string
	// Address is the IP address to which it leads, with the port where that matters. Empty: it was not looked up.
	Address string
	// Kind says what the address is.
	Kind string
	// Flag of the server allows it. Empty: nothing does.
	Flag string
}

// foundByProxy is the kind of a name that is allowed as that of a Service, and that something else may have for who looks it up elsewhere.
const foundByProxy = "a name that a proxy may find outside of the cluster"

// Error says which address was refused, and why.
func (e *RefusedError) Error() string {
	text := e.Host
	if e.Address != "" && e.Address != e.Host {
		text += " leads to " + e.Address + ", which"
	}
	return text + " is " + e.Kind
}

// Advice says which flag of the server allows the address, or that none does.
func (e *RefusedError) Advice() string {
	if e.Kind == foundByProxy {
		return "write it as NAME.NAMESPACE.svc, exempt it from the proxy with NO_PROXY of this server, or add the host itself to " + AllowedHostsFlag
	}
	switch e.Flag {
	case AllowLoopbackFlag:
		return "run the hook behind a Service, or run this server with " + AllowLoopbackFlag
	case AllowedHostsFlag:
		return "add the host, or a network that it is in, to " + AllowedHostsFlag + " of this server"
	default:
		return "this server calls no hook there, and no flag allows it"
	}
}
