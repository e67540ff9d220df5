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
	"fmt"
	"os"
	"runtime/debug"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/logs"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app"
)

// gcPercent is the default of GOGC. Most of the memory is the cache of the cluster's objects, which lives long: Go's default of
// 100 would double it to save little time. See docs/performance.md.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	logs.InitLogs()
	cmd, err := app.NewCommand()
	if err == nil {
		err = cmd.ExecuteContext(genericapiserver.SetupSignalContext())
	}
	logs.FlushLogs()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
