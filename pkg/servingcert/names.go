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

package servingcert

import (
	"crypto/x509"
	"net"
	"slices"
)

// names are what a certificate is valid for.
type names struct {
	dns []string
	ips []net.IP
}

// newNames sorts hosts into DNS names and IP addresses, and leaves out empty and repeated ones.
func newNames(hosts []string) names {
	var n names
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			if !slices.ContainsFunc(n.ips, ip.Equal) {
				n.ips = append(n.ips, ip)
			}
			continue
		}
		if host != "" && !slices.Contains(n.dns, host) {
			n.dns = append(n.dns, host)
		}
	}
	return n
}

// coveredBy tells whether the certificate is valid for all names. It may be valid for more.
func (n names) coveredBy(certificate *x509.Certificate) bool {
	for _, name := range n.dns {
		if !slices.Contains(certificate.DNSNames, name) {
			return false
		}
	}
	for _, ip := range n.ips {
		if !slices.ContainsFunc(certificate.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}
