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
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

const (
	first = 12000
	count = 8000
)

var (
	mu    sync.Mutex
	found = map[int]bool{}
)

// Find returns a port of the loopback interface at which nobody listens. It returns no port twice in one process, and may be called from
// several goroutines. Another process may take the port before its program does.
func Find(t testing.TB) int {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	var last error
	for range 100 {
		port := first + rand.IntN(count)
		if found[port] {
			continue
		}
		var listener net.Listener
		if listener, last = new(net.ListenConfig).Listen(t.Context(), "tcp", Address(port)); last != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		found[port] = true
		return port
	}
	t.Fatalf("finding a free port from %d to %d: %v", first, first+count-1, last)
	return 0
}

// Address is where a program listens on a port, or where others find it.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
