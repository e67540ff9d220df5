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

package v1alpha1

import (
	"net/url"
	"strings"
)

// EndpointMatches reports whether the host of an EndpointConfig is that of a webhook's address, with or without the port where
// it is the default of the scheme (docs/reference/contract.md#s2.4). Case does not matter.
func EndpointMatches(host string, address *url.URL) bool {
	defaultPort := ":80"
	if address.Scheme == "https" {
		defaultPort = ":443"
	}
	if strings.EqualFold(host, address.Host) {
		return true
	}
	if address.Port() == "" {
		return strings.EqualFold(host, address.Host+defaultPort)
	}
	bare, hasDefaultPort := strings.CutSuffix(address.Host, defaultPort)
	return hasDefaultPort && strings.EqualFold(host, bare)
}
