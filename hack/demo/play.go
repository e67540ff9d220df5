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
	"strconv"
	"syscall"
	"time"
)

// stepTimeout bounds each step. The longest takes some seconds on two cores.
const stepTimeout = 3 * time.Minute

type options struct {
	once bool
	port int
}

// A stage is what the steps of one run share.
type stage struct {
	out       io.Writer
	dir       string
	processes processes
	// cluster is set by startControlPlane, serverPort by startServer, hookURL by startHook.
	cluster    cluster
	serverPort int
	hookURL    string
}

// cluster is what the control plane's program prints when it is up.
type cluster struct {
	Kubeconfig string `json:"kubeconfig"`
	Kubectl    string `json:"kubectl"`
}

// play runs the demonstration. With once it returns when the result was shown, without when ctx is done, which is how a
// visitor leaves and no error. Either way nothing that it started or wrote is left.
func play(visitor context.Context, o options, out io.Writer) (err error) {
	port, err := choosePort(visitor, o.port)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "metacontroller-demo-")
	if err != nil {
		return fmt.Errorf("creating the demonstration's directory: %w", err)
	}
	ctx, cancel := context.WithCancelCause(visitor)
	s := &stage{out: out, dir: dir, serverPort: port, processes: processes{dir: dir, ended: cancel}}
	defer func() {
		switch {
		case visitor.Err() != nil && !o.once:
			err = nil
		case err != nil:
			fmt.Fprint(out, "\n", s.processes.tails(15), "\n")
		}
		fmt.Fprintln(out, "==> Ending all processes and removing", dir)
		s.processes.stop()
		err = errors.Join(err, os.RemoveAll(dir))
	}()

	for _, step := range s.steps() {
		fmt.Fprintln(out, "==>", step.title)
		if err := within(ctx, step.do); err != nil {
			return err
		}
	}
	if o.once {
		return nil
	}
	s.showNext()
	<-ctx.Done()
	return context.Cause(ctx)
}

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
