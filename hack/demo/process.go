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
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// gracePeriod is how long a process may take to end after SIGTERM before its whole group is killed.
const gracePeriod = 20 * time.Second

// A process is a program that runs in the background until stop.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// ended is closed when the process has ended; only then err may be read.
	ended chan struct{}
	err   error
}

// processes are started in order and stopped in the opposite order.
type processes struct {
	dir string
	// ended is called when one of them has ended.
	ended func(error)
	all   []*process
}

// background makes the command of a process: one that does not end with the step that starts it, but in stop.
func background(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(context.WithoutCancel(ctx), name, args...)
}

// start runs a program in a process group of its own. What it prints goes to a file. The channel returned yields the
// first line of its standard output for which wanted answers true.
func (p *processes) start(name string, cmd *exec.Cmd, wanted func(string) bool) (*process, <-chan string, error) {
	file, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		return nil, nil, fmt.Errorf("creating the log of %s: %w", name, err)
	}
	out := &lineWriter{file: file, wanted: wanted, found: make(chan string, 1)}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, file, ownGroup()
	// A grandchild that keeps our pipe open must not keep us waiting.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("starting %s: %w", name, err), file.Close())
	}
	proc := &process{name: name, log: file.Name(), cmd: cmd, ended: make(chan struct{})}
	p.all = append(p.all, proc)
	go func() {
		proc.err = errors.Join(cmd.Wait(), file.Close())
		close(proc.ended)
		p.ended(proc.diedError())
	}()
	return proc, out.found, nil
}

// stop ends every process and waits until all of them are gone.
func (p *processes) stop() {
	for _, proc := range slices.Backward(p.all) {
		proc.stop()
	}
	p.all = nil
}

// tails returns the last lines of every log.
func (p *processes) tails(lines int) string {
	var b strings.Builder
	for _, proc := range p.all {
		fmt.Fprintf(&b, "--- last lines of %s ---\n%s\n", proc.name, tail(proc.log, lines))
	}
	return b.String()
}

func (p *process) diedError() error {
	if p.err != nil {
		return fmt.Errorf("%s ended on its own: %w", p.name, p.err)
	}
	return fmt.Errorf("%s ended on its own", p.name)
}

// stop asks the process to end, and kills its group when it does not or when it left somebody behind. That signals may
// find nobody is expected.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(gracePeriod):
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// await returns the line that start was asked for, or why ctx was done before: it is when a process ends, too.
func (p *process) await(ctx context.Context, line <-chan string) (string, error) {
	select {
	case s := <-line:
		return s, nil
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for %s: %w", p.name, context.Cause(ctx))
	}
}

// A lineWriter copies to a file, and sends the first line that is wanted. It is used by one goroutine, that of exec.
type lineWriter struct {
	file   *os.File
	wanted func(string) bool
	found  chan string
	line   bytes.Buffer
}

// Write implements io.Writer.
func (w *lineWriter) Write(b []byte) (int, error) {
	for _, c := range b {
		if w.wanted == nil {
			break
		}
		if c != '\n' {
			w.line.WriteByte(c)
			continue
		}
		if s := w.line.String(); w.wanted(s) {
			w.found <- s
			w.wanted = nil
		}
		w.line.Reset()
	}
	return w.file.Write(b)
}

// tail returns the last lines of a file, or why they cannot be read.
func tail(file string, lines int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// output runs a short program to its end and returns what it printed on standard output. What it printed on standard
// error is in the error. On cancellation it is killed.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = ownGroup()
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
