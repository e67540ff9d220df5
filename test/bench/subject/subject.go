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

package subject

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/test/bench/gauge"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

// Subject is a program that is measured. One goroutine uses it.
type Subject interface {
	// Name is what results call it.
	Name() string
	// Conditions reports whether controllers have a condition Ready.
	Conditions() bool
	// Install prepares the cluster, before the first start.
	Install(ctx context.Context) error
	// Start starts the program, which must not run, and waits until it serves.
	Start(ctx context.Context) error
	// Stop ends the program if it runs, and waits for its end.
	Stop()
	// PID is the number of the process that was started last.
	PID() int
	// Get reads a path that the program serves over HTTP, such as /metrics.
	Get(ctx context.Context, path string) ([]byte, error)
}

// Cluster is where a subject runs.
type Cluster struct {
	// Config and Kubeconfig are those of an administrator, Kubectl is the program.
	Config              *rest.Config
	Kubeconfig, Kubectl string
	// Folder is where the subject may keep its files.
	Folder string
}

const (
	// patience is how long a program may take to start, grace to end.
	patience = time.Minute
	grace    = 30 * time.Second
)

// program is what all subjects have in common.
type program struct {
	name   string
	binary string
	// base is the address of what is served over HTTP.
	base    string
	client  *http.Client
	log     string
	command *exec.Cmd
	running *process.Process
}

// Name implements Subject.
func (p *program) Name() string { return p.name }

// PID implements Subject.
func (p *program) PID() int { return p.command.Process.Pid }

// Get implements Subject.
func (p *program) Get(ctx context.Context, path string) ([]byte, error) {
	return gauge.Fetch(ctx, p.client, p.base+path)
}

// Stop implements Subject.
func (p *program) Stop() {
	if p.running == nil {
		return
	}
	// How it ends is not what is measured.
	_ = p.running.Stop(grace)
	p.running = nil
}

// launch starts the program, and waits until serves returns nil, which is tried again after the interval.
func (p *program) launch(ctx context.Context, arguments []string, interval time.Duration, serves func(context.Context) error) error {
	p.command = process.Command(ctx, p.binary, arguments...)
	running, err := process.Start(p.command, process.Options{Name: filepath.Base(p.binary), Log: p.log})
	if err != nil {
		return err
	}
	p.running = running
	for started := time.Now(); ; {
		err := serves(ctx)
		if err == nil {
			return nil
		}
		if time.Since(started) > patience {
			return fmt.Errorf("waiting for %s: %w\n%s", p.name, err, running.Tail(20))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", p.name, context.Cause(ctx))
		case <-running.Ended():
			return fmt.Errorf("waiting for %s: %w\n%s", p.name, running.Err(), running.Tail(20))
		case <-time.After(interval):
		}
	}
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	return strconv.Atoi(port)
}
