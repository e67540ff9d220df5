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
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/command"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
)

func main() {
	// A terminal that is closed ends its processes with SIGHUP, but not a local hook, which has a process group of its own.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// Not everything heeds the context, such as what asks which kinds the cluster serves: a second signal ends the process.
	context.AfterFunc(ctx, stop)
	err := command.New(genericiooptions.IOStreams{In: input{ctx, os.Stdin}, Out: os.Stdout, ErrOut: os.Stderr}).ExecuteContext(ctx)
	stop()
	status, message := exitstatus.Of(err)
	if message != nil {
		fmt.Fprintln(os.Stderr, "Error:", message)
	}
	os.Exit(status)
}
