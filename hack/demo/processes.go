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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

// gracePeriod is how long a process may take to end before it is killed.
const gracePeriod = 20 * time.Second

// processes, other than the hook, are started in order and stopped in the opposite order.
type processes struct {
	// dir gets the logs.
	dir string
	// ended is called when one of them has ended.
	ended func(error)
	all   []*process.Process
}

// start runs a program in the background. The line that it is asked for may be nil.
func (p *processes) start(name string, cmd *exec.Cmd, wanted func(string) bool) (*process.Process, error) {
	started, err := process.Start(cmd, process.Options{
		Name: "the " + name, Log: filepath.Join(p.dir, name+".log"), Wanted: wanted, OnEnd: p.ended,
	})
	if err == nil {
		p.all = append(p.all, started)
	}
	return started, err
}

// stop ends every process and waits until all of them are gone. How they end does not matter any more.
func (p *processes) stop() {
	for _, started := range slices.Backward(p.all) {
		_ = started.Stop(gracePeriod)
	}
	p.all = nil
}

// tails returns the last lines of every log.
func (p *processes) tails(lines int) string {
	var b strings.Builder
	for _, started := range p.all {
		b.WriteString(started.Tail(lines))
	}
	return b.String()
}
