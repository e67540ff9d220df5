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

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// maxLine is how many bytes of a line of a log Tail shows.
const maxLine = 400

// Options say how a program is started.
type Options struct {
	// Name is what errors call the program.
	Name string
	// Log is the file to which standard output and standard error are appended. It is made when it does not exist.
	Log string
	// Also, when not nil, gets the output as well. It must be safe for concurrent use, since standard output and standard error are copied
	// at the same time.
	Also io.Writer
	// Wanted tells which line of standard output Line returns. Nil: none.
	Wanted func(line string) bool
	// OnEnd, when not nil, is called once with what Err returns when the program has ended, for whatever reason.
	OnEnd func(error)
}

// A Process is a program that runs in the background until Stop or Kill. Its methods may be used concurrently.
type Process struct {
	name, log string
	cmd       *exec.Cmd
	line      chan string
	ended     chan struct{}
	// err may be read when ended is closed.
	err error
}

// Command makes the command for Start: one that does not end with ctx.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(context.WithoutCancel(ctx), name, args...)
}

// Start runs a program.
func Start(cmd *exec.Cmd, o Options) (*Process, error) {
	file, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", o.Name, err)
	}
	p := &Process{name: o.Name, log: o.Log, cmd: cmd, line: make(chan string, 1), ended: make(chan struct{})}
	cmd.Stdout = &lineWriter{file: file, wanted: o.Wanted, found: p.line}
	cmd.Stderr = file
	ownGroup(cmd)
	if o.Also != nil {
		cmd.Stdout, cmd.Stderr = io.MultiWriter(cmd.Stdout, o.Also), io.MultiWriter(file, o.Also)
	}
	// A grandchild that keeps our pipe open must not keep us waiting.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", o.Name, err), file.Close())
	}
	go func() {
		p.err = errors.Join(cmd.Wait(), file.Close())
		close(p.ended)
		if o.OnEnd != nil {
			o.OnEnd(p.Err())
		}
	}()
	return p, nil
}

// ID returns the operating system's number of the process.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err says how the program ended, never with nil. It blocks until then.
func (p *Process) Err() error {
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("%s ended: %w", p.name, p.err)
	}
	return fmt.Errorf("%s ended with success", p.name)
}

// Code returns the exit code of the program, -1 after a signal. It blocks until the program has ended.
func (p *Process) Code() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// Line returns the first line that was wanted. It is an error when the program ends or ctx is done before.
func (p *Process) Line(ctx context.Context) (string, error) {
	select {
	case line := <-p.line:
		return line, nil
	case <-p.ended:
		return "", p.Err()
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for a line of %s: %w", p.name, context.Cause(ctx))
	}
}

// Stop asks the program to end, and kills it when it has not after the grace period. Whatever it left behind is killed.
// The error is nil when it ended in time and with status 0.
func (p *Process) Stop(grace time.Duration) error {
	// Signals may find nobody; that is what they are for.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(grace):
		p.Kill()
		return fmt.Errorf("%s had not ended %s after SIGTERM and was killed", p.name, grace)
	}
	p.Kill()
	return p.err
}

// Kill ends the program and whatever it started, without asking.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// Tail returns the last lines of the log, cut where they are long, under a heading.
func (p *Process) Tail(lines int) string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		data = []byte(err.Error())
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	last := slices.Clone(all[max(0, len(all)-lines):])
	for i, line := range last {
		if len(line) > maxLine {
			last[i] = strings.ToValidUTF8(line[:maxLine], "") + "…"
		}
	}
	return fmt.Sprintf("--- last lines of %s ---\n%s\n", p.name, strings.Join(last, "\n"))
}

// builtVariable names the folder with the programs that make has built.
const builtVariable = "METACONTROLLER_PROGRAMS"

// Built returns the folder with the programs that make has built, or nothing where the environment variable METACONTROLLER_PROGRAMS does
// not name it: who needs one of them then builds it.
func Built() string { return os.Getenv(builtVariable) }

// A lineWriter copies to a file, and sends the first line that is wanted. It is used by one goroutine, that of exec.
type lineWriter struct {
	file   *os.File
	wanted func(string) bool
	found  chan<- string
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

// Output runs a short program to its end and returns what it printed on standard output. The error of one that failed
// holds its arguments and what it printed on standard error. When ctx is done the program is killed, and the error is the
// context's cause.
func Output(ctx context.Context, name string, args ...string) (string, error) {
	return OutputOf(ctx, exec.CommandContext(ctx, name, args...))
}

// OutputOf is Output for a command that was made with ctx. What it prints on standard error goes to its Stderr as well, if that is not nil.
func OutputOf(ctx context.Context, cmd *exec.Cmd) (string, error) {
	ownGroup(cmd)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	also := cmd.Stderr
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if also != nil {
		cmd.Stderr = io.MultiWriter(&stderr, also)
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// shortest and longest bound the pauses of Poll.
const shortest, longest = 250 * time.Millisecond, time.Second

// Poll asks until it is done or fails, or until ctx ends, and returns why it ended before it was done. To ask takes a program, which is run for a
// fifth of the time, or more where it takes long.
func Poll(ctx context.Context, ask func(ctx context.Context) (done bool, err error)) error {
	for {
		asked := time.Now()
		if done, err := ask(ctx); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(max(4*time.Since(asked), shortest), longest)):
		}
	}
}

// Signal sends the program a signal.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("sending %s to %s: %w", s, p.name, err)
	}
	return nil
}
