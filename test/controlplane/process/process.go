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
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Process is a running program. Its output goes to a file.
type Process struct {
	// Name of the program, for people.
	Name    string
	logFile string
	command *exec.Cmd
	ended   chan struct{}
	err     error
}

// Start starts a program whose output goes to <name>.log in folder. The program is ended by the kernel when this process
// dies, however it dies.
func Start(name, folder, program string, args ...string) (*Process, error) {
	p := &Process{Name: name, logFile: filepath.Join(folder, name+".log"), ended: make(chan struct{})}
	log, err := os.Create(p.logFile)
	if err != nil {
		return nil, fmt.Errorf("creating the log of %s: %w", name, err)
	}
	p.command = exec.Command(program, args...)
	p.command.Stdout, p.command.Stderr = log, log
	// Its own group: a Ctrl-C at the terminal is for this process, which ends the others in order.
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		defer func() { _ = log.Close() }()
		p.err = p.command.Wait()
	}()
	return p, nil
}

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err says how the program ended and shows the end of its log. It may be called after Ended is closed.
func (p *Process) Err() error {
	return fmt.Errorf("%s ended (%w); the end of its log:\n%s", p.Name, p.err, p.tail())
}

// Stop ends the program: kindly, and after grace by force.
func (p *Process) Stop(ctx context.Context, grace time.Duration) {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.ended:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	_ = p.command.Process.Kill()
	<-p.ended
}

// tail returns the last lines of the log.
func (p *Process) tail() string {
	content, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	if len(lines) > 15 {
		lines = lines[len(lines)-15:]
	}
	return string(bytes.Join(lines, []byte("\n")))
}
