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

// Command kubectl-metacontroller is a plugin of kubectl for those who write and run controllers: kubectl metacontroller.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // Inline hooks read times in zones, and images and hosts may have no files of them.

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/command"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
)

// statusClosed is the exit status of a command whose output nobody reads any more: what shells say of a process that SIGPIPE ended.
const statusClosed = 128 + int(syscall.SIGPIPE)

func main() {
	// A terminal that is closed ends its processes with SIGHUP, but not a local hook, which has a process group of its own.
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // It is by nohup.
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	// Not everything heeds the context, such as what asks which kinds the cluster serves: a second signal ends the process.
	context.AfterFunc(ctx, stop)
	// Neither may SIGPIPE end us before what we started. Nobody receives it: the write returns an error, which output heeds.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, closed := context.WithCancelCause(ctx)
	streams := genericiooptions.IOStreams{In: input{ctx, os.Stdin}, Out: output{os.Stdout, closed}, ErrOut: os.Stderr}
	err := command.Execute(ctx, command.New(streams))
	stop()
	if errors.Is(context.Cause(ctx), errClosed) {
		os.Exit(statusClosed)
	}
	status, message := exitstatus.Of(err)
	if message != nil {
		fmt.Fprintln(os.Stderr, "Error:", message)
	}
	os.Exit(status)
}
