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

package freeport

import (
	"net"
	"testing"
)

func TestPortsAreFreeAndDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port := Find(t)
		if port < first || port >= first+count || seen[port] {
			t.Errorf("got %d, want a port from %d to %d that was not found before", port, first, first+count-1)
		}
		seen[port] = true
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", Address(port))
		if err != nil {
			t.Fatalf("listening where nobody listens: %v", err)
		}
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
