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
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/hack/demo/manifests"
)

// stepTimeout bounds each step. The longest takes some seconds on two cores, but a hook may have to be compiled, the control plane says itself which of
// its components does not become ready, and a machine may be slow.
const stepTimeout = 20 * time.Minute

// logLines is how many of the last lines of each log are printed after a failure.
const logLines = 15

// A stage is what the steps of one run share.
type stage struct {
	out     io.Writer
	options options
	project *project
	// dir is the temporary directory, and programs that of the programs of the repository.
	dir, programs string
	processes     processes
	// working are the goroutines of the hook, which work until the end of work.
	working sync.WaitGroup
	work    context.Context
	// cluster is set by startControlPlane, or named by the options.
	cluster    cluster
	serverPort int
	// hooks run the parts of the project.
	hooks []*hookRunner
	// set is what is applied, once it was read: by the steps first, by the hook's goroutine after changes.
	set atomic.Pointer[manifests.Set]
	// applying guards applied, the objects that were applied by kind, namespace and name.
	applying sync.Mutex
	applied  map[string]string
	// outcome is how the first syncs went.
	outcome outcome
	// saving lets one save after the other be told.
	saving sync.Mutex
}

// cluster is what the control plane's program prints when it is up.
type cluster struct {
	Kubeconfig string         `json:"kubeconfig"`
	Kubectl    string         `json:"kubectl"`
	Processes  map[string]int `json:"processes"`
}

// play shows a project. With once it returns when the result was shown, without when ctx is done, which is how a
// visitor leaves and no error. Either way nothing that it started or wrote is left.
func play(visitor context.Context, o options, out io.Writer) (err error) {
	s, err := newStage(visitor, o, out)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(visitor)
	s.work, s.processes = ctx, processes{dir: s.dir, ended: cancel}
	defer func() {
		keep := false
		switch {
		case visitor.Err() != nil && !o.once:
			err = nil
		case err != nil && visitor.Err() == nil && !errors.As(err, new(hookError)):
			keep = true
			fmt.Fprint(s.out, "\n", s.processes.tails(logLines), "\n")
		}
		if keep {
			fmt.Fprintf(s.out, "==> Ending all processes. The logs stay in %s. Where the machine was busy, run it again\n", s.dir)
		} else {
			fmt.Fprintln(s.out, "==> Ending all processes and removing", s.dir)
		}
		cancel(err)
		s.working.Wait()
		s.processes.stop()
		if !keep {
			err = errors.Join(err, os.RemoveAll(s.dir))
		}
	}()

	for _, step := range s.steps() {
		if step.title != "" {
			fmt.Fprintln(s.out, "==>", step.title)
		}
		if err := within(ctx, step.do); err != nil {
			return err
		}
	}
	if o.once {
		return nil
	}
	if err := s.showNext(); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// newStage finds out what is asked for, and makes the temporary directory.
func newStage(ctx context.Context, o options, out io.Writer) (*stage, error) {
	p, err := o.project()
	if err != nil {
		return nil, err
	}
	serverPort, err := choosePort(ctx, o.port)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the programs of the repository: %w", err)
	}
	s := &stage{
		out: &lines{out: out}, options: o, project: p, programs: filepath.Dir(self), serverPort: serverPort,
		cluster: cluster{Kubeconfig: o.kubeconfig}, applied: map[string]string{},
	}
	if o.kubeconfig != "" {
		if s.cluster.Kubectl, err = exec.LookPath("kubectl"); err != nil {
			return nil, fmt.Errorf("--kubeconfig takes kubectl from PATH: %w", err)
		}
	}
	s.dir, err = os.MkdirTemp("", "metacontroller-demo-")
	if err != nil {
		return nil, fmt.Errorf("creating the demonstration's directory: %w", err)
	}
	// kubectl and its plugin would leave what they discover of each control plane in the user's home.
	if err := os.Setenv("KUBECACHEDIR", s.kubectlCache()); err != nil {
		return nil, fmt.Errorf("naming the cache of kubectl: %w", err)
	}
	if err := s.prepareHooks(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

// prepareHooks makes a runner for each hook, which sees changes of files from now on.
func (s *stage) prepareHooks(ctx context.Context) error {
	for i, part := range s.project.parts {
		port, err := choosePort(ctx, 0)
		if err != nil {
			return err
		}
		hook, err := newHookRunner(part.hook, port, filepath.Join(s.dir, fmt.Sprintf("hook-%d.log", i)), s.out, part.folders())
		if err != nil {
			return err
		}
		hook.manifest, hook.saved = s.isManifest, s.save
		s.hooks = append(s.hooks, hook)
	}
	return nil
}

// program is the path of a program of the repository.
func (s *stage) program(name string) string { return filepath.Join(s.programs, name) }

// within runs one step with a limit of time.
func within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("not done after %s", stepTimeout))
	defer cancel()
	return do(ctx)
}

// choosePort returns the port asked for if nobody listens there, or a free one for 0.
func choosePort(ctx context.Context, asked int) (int, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(asked)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return 0, fmt.Errorf("port %d is in use by another program: choose another with PORT=…, or leave PORT out and get a free one", asked)
	case errors.Is(err, syscall.EACCES):
		return 0, fmt.Errorf("port %d may be used by root only: choose one above 1023 with PORT=…", asked)
	case err != nil:
		return 0, fmt.Errorf("port %d cannot be used: %w", asked, err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err := errors.Join(err, listener.Close()); err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	return strconv.Atoi(port)
}
