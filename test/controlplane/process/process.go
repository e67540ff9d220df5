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
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// tailLines is how many lines of its log an EndedError shows.
const tailLines = 15

// Process is a running program. Its methods may be used concurrently.
type Process struct {
	name, log string
	command   *exec.Cmd
	ended     chan struct{}
	// err may be read when ended is closed.
	err error
}

// A Program is what Start runs.
type Program struct {
	// Name is what its log and errors call it.
	Name string
	// Path is the file.
	Path string
	Args []string
	// Environment are further variables of its environment, as "NAME=value".
	Environment []string
}

// EndedError says that a program has ended.
type EndedError struct {
	// Name of the program.
	Name string
	// Err is how it ended; nil with exit status 0.
	Err error
	// Tail holds the last lines of its log.
	Tail string
}

// Error shows all of it.
func (e *EndedError) Error() string {
	how := "with success"
	if e.Err != nil {
		how = e.Err.Error()
	}
	return fmt.Sprintf("%s ended (%s); the end of its log:\n%s", e.Name, how, e.Tail)
}

// Unwrap returns how the program ended.
func (e *EndedError) Unwrap() error { return e.Err }

// Start starts a program whose output goes to <name>.log in folder. The program does not end with ctx, but with StopAll;
// and where the kernel can do that (Linux), with this process, however that dies.
func Start(ctx context.Context, folder string, program Program) (*Process, error) {
	p := &Process{name: program.Name, log: filepath.Join(folder, program.Name+".log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("creating the log of %s: %w", program.Name, err)
	}
	p.command = exec.CommandContext(context.WithoutCancel(ctx), program.Path, program.Args...)
	p.command.Env = append(p.command.Environ(), program.Environment...)
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = attributes()

	started := make(chan error)
	go func() {
		// Linux ends a child with the thread that started it, so this thread stays until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.command.Start()
		started <- err
		if err == nil {
			p.err = p.command.Wait()
		}
		_ = log.Close()
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", program.Name, err)
	}
	return p, nil
}

// Name returns the program's name.
func (p *Process) Name() string { return p.name }

// ID returns the operating system's number of the process.
func (p *Process) ID() int { return p.command.Process.Pid }

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err waits until the program has ended and returns an EndedError.
func (p *Process) Err() error {
	<-p.ended
	return &EndedError{Name: p.name, Err: p.err, Tail: p.tail()}
}

// StopAll ends programs: it asks all of them at once, and those that have not ended after the grace period are killed. It
// returns when all have ended.
func StopAll(grace time.Duration, processes ...*Process) {
	for _, p := range processes {
		// One that has ended cannot be asked, and needs not be.
		_ = p.command.Process.Signal(syscall.SIGTERM)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for _, p := range processes {
		select {
		case <-p.ended:
			continue
		case <-timer.C:
			// All others have had their time, too.
			timer.Reset(0)
		}
		if err := p.command.Process.Kill(); err == nil || errors.Is(err, os.ErrProcessDone) {
			<-p.ended
		}
	}
}

// tail returns the last lines of the log.
func (p *Process) tail() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
