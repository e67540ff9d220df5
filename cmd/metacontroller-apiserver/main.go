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

// Command metacontroller-apiserver serves the API group metacontroller.k8s.io and runs the controllers stored in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"
	_ "time/tzdata" // Inline hooks read times in zones, and images and hosts may have no files of them.

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/logs"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app"
)

// gcPercent is the default of GOGC. Most of the memory is the cache of the cluster's objects, which lives long: Go's default of
// 100 would double it to save little time. See docs/performance.md.
const gcPercent = 40

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	logs.InitLogs()
	limit, err := memoryLimit(os.Getenv)
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	var cmd *cobra.Command
	if err == nil {
		cmd, err = app.NewCommand()
	}
	if err == nil {
		ctx, stop := untilHangup(genericapiserver.SetupSignalContext())
		err = cmd.ExecuteContext(ctx)
		stop()
	}
	logs.FlushLogs()
	if err != nil {
		if message := err.Error(); message != "" {
			fmt.Fprintln(os.Stderr, "Error:", message)
		}
		os.Exit(status(err))
	}
}

// untilHangup ends a context also when the terminal of the process is closed, which would end it without closing its store and giving up its
// Lease. A process that nohup started goes on.
func untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// exiting is an error of a command that has an exit status of its own.
type exiting interface {
	error
	ExitStatus() int
}

func status(err error) int {
	if e, ok := errors.AsType[exiting](err); ok {
		return e.ExitStatus()
	}
	return 1
}

// memoryVariable is the environment variable with the memory that the process may use, in bytes. In the manifests it is the limit of the
// container.
const memoryVariable = "METACONTROLLER_MEMORY_LIMIT"

// memoryLimit returns below what the Go runtime is to keep its memory, and 0 if nobody says: nine tenths of what the process may use. The
// rest is for what the runtime does not count, such as the program itself, pages of etcd's database, and buffers of connections. GOMEMLIMIT,
// which the runtime reads itself, goes before.
func memoryLimit(getenv func(string) string) (int64, error) {
	text := getenv(memoryVariable)
	if text == "" || getenv("GOMEMLIMIT") != "" {
		return 0, nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit <= 0 {
		return 0, fmt.Errorf("%s must be a number of bytes, not %q", memoryVariable, text)
	}
	return limit / 10 * 9, nil
}
