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

package main

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
)

func TestChoosePort(t *testing.T) {
	busy := freeport.Find(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", freeport.Address(busy))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := choosePort(t.Context(), busy); err == nil || !strings.Contains(err.Error(), "in use by another program") {
		t.Errorf("got %v for a port in use, want a sentence that says so", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if port, err := choosePort(t.Context(), busy); err != nil || port != busy {
		t.Errorf("got %d and %v, want the free port asked for", port, err)
	}
	if port, err := choosePort(t.Context(), 0); err != nil || port == 0 {
		t.Errorf("got %d and %v, want a free port", port, err)
	}
	if _, err := choosePort(t.Context(), 70000); err == nil || errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v for a port that does not exist, want an error", err)
	}
}
