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

package examplehook

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A hook of an example listens at every address, unless HOST names one: a cluster may have addresses of IPv6 only.
func TestHooksListenAtAddressesOfBothFamilies(t *testing.T) {
	hosts := []string{"127.0.0.1", "::1"}
	if listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:0"); err != nil {
		hosts = hosts[:1] // This machine has none of IPv6.
	} else if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob("../../artifacts/examples/*/*.py")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("there are no hooks of examples: %v", err)
	}
	environment := slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "HOST=") })
	for _, script := range scripts {
		t.Run(filepath.Base(filepath.Dir(script)), func(t *testing.T) {
			_, port, _ := strings.Cut(strings.TrimPrefix(start(t, script, environment), "http://"), ":")
			for _, host := range hosts {
				connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
				if err != nil {
					t.Error(err)
					continue
				}
				_ = connection.Close() // Nothing was sent.
			}
		})
	}
}
