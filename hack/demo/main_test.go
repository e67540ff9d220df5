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
	"os"
	"syscall"
	"testing"
)

// `make run | tee log` and `make run | head`: the program after the pipe has ended, and what was begun must be put away all the same.
func TestItEndsInOrderWhenNobodyReads(t *testing.T) {
	ctx, stop := untilTold(t.Context())
	defer stop()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString("==> Done\n"); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v from writing to nobody", err)
	}
	<-ctx.Done()
	if err := writer.Close(); err != nil {
		t.Error(err)
	}
}

func TestArgumentsThatAreWrong(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {"--port", "a"}, {"hook.py"}} {
		if err := run(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: got %v", args, err)
		}
	}
	if err := run(t.Context(), []string{"--help"}); err != nil {
		t.Errorf("--help: got %v", err)
	}
}
