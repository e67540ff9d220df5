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
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

func TestMemoryLimitIsThatOfTheContainer(t *testing.T) {
	for name, test := range map[string]struct {
		environment map[string]string
		want        int64
		problem     string
	}{
		"nobody says":           {},
		"a gibibyte":            {environment: map[string]string{memoryVariable: "1073741824"}, want: 966367638},
		"GOMEMLIMIT goes first": {environment: map[string]string{memoryVariable: "1073741824", "GOMEMLIMIT": "100MiB"}},
		"a quantity":            {environment: map[string]string{memoryVariable: "1Gi"}, problem: `METACONTROLLER_MEMORY_LIMIT must be a number of bytes, not "1Gi"`},
		"nothing":               {environment: map[string]string{memoryVariable: "0"}, problem: "must be a number of bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := memoryLimit(func(name string) string { return test.environment[name] })
			if test.problem != "" {
				if err == nil || !strings.Contains(err.Error(), test.problem) {
					t.Errorf("got %v, want %q in it", err, test.problem)
				}
				return
			}
			if err != nil || got != test.want {
				t.Errorf("got %d %v, want %d", got, err, test.want)
			}
		})
	}
}

// statusError is an error with an exit status.
type statusError struct{ status int }

func (e statusError) Error() string   { return "" }
func (e statusError) ExitStatus() int { return e.status }

func TestCommandsMayHaveAnExitStatus(t *testing.T) {
	if got := status(errors.New("any")); got != 1 {
		t.Errorf("an error ends the process with %d, want 1", got)
	}
	if got := status(fmt.Errorf("wrapped: %w", statusError{2})); got != 2 {
		t.Errorf("an error with status 2 ends the process with %d", got)
	}
}

func TestAHangupEndsTheServerInOrderUnlessItIsIgnored(t *testing.T) {
	hangUp := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	// Tests that run under nohup begin with the signal ignored.
	heeded := make(chan os.Signal, 1)
	signal.Notify(heeded, syscall.SIGHUP)
	ctx, stop := untilHangup(t.Context())
	hangUp()
	<-ctx.Done()
	stop()
	signal.Stop(heeded)

	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	ctx, stop = untilHangup(t.Context())
	defer stop()
	hangUp()
	// A signal that is heeded, sent after it, comes after it.
	other := make(chan os.Signal, 1)
	signal.Notify(other, syscall.SIGUSR1)
	defer signal.Stop(other)
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	<-other
	if ctx.Err() != nil {
		t.Error("the context has ended, though the signal is ignored")
	}
}
