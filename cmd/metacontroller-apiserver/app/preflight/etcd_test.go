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

package preflight

import (
	"crypto/tls"
	"testing"
)

// An address is told to be without encryption if the client of etcd uses none for it.
func TestAddressesWithoutEncryption(t *testing.T) {
	for _, tc := range []struct {
		server       string
		files, plain bool
	}{
		{"http://etcd:2379", false, true},
		{"http://etcd:2379", true, true},
		{"HTTP://etcd:2379", true, true},
		{"etcd:2379", false, true},
		{"etcd:2379", true, false},
		{"https://etcd:2379", false, false},
		{"https://etcd:2379", true, false},
		{"unix:///run/etcd", false, false},
		{"unix:run/etcd", false, false},
	} {
		var encryption *tls.Config
		if tc.files {
			encryption = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if got := isPlain(tc.server, encryption); got != tc.plain {
			t.Errorf("%s, with files: %t: got %t", tc.server, tc.files, got)
		}
	}
}
