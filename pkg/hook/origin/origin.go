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

package origin

import (
	"net"
	"net/url"
	"strings"
)

// Keeps reports whether a redirect stays with the hook: within scheme, host and port, or from http to https at the ports of these, as
// ingress controllers redirect. There is no way back to http.
func Keeps(from, to *url.URL) bool {
	secure := Upgraded(from)
	return same(to, from) || secure != nil && same(to, secure)
}

func same(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && Port(a) == Port(b)
}

// Upgraded returns the root of the same host by https, nil if the URL is not one of http at port 80.
func Upgraded(u *url.URL) *url.URL {
	if u.Scheme != "http" || Port(u) != "80" {
		return nil
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(u.Hostname(), "443"), Path: "/"}
}

// Address returns the host of the URL of a hook or proxy with its port, as a connection to it is made.
func Address(u *url.URL) string { return net.JoinHostPort(u.Hostname(), Port(u)) }

// Port returns the port of the URL of a hook or proxy, that of its scheme if it names none.
func Port(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	switch u.Scheme {
	case "https":
		return "443"
	case "socks5", "socks5h":
		return "1080"
	default:
		return "80"
	}
}
