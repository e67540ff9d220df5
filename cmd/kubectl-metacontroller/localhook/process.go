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

package localhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/origin"
)

const (
	// startLimit is how long a hook may take until it listens: it may have to be compiled.
	startLimit = 2 * time.Minute
	// endLimit is how long it may take to end before it is killed.
	endLimit = 5 * time.Second
	// dialInterval is how often it is tried whether it listens, and dialLimit how long one try takes.
	dialInterval = 50 * time.Millisecond
	dialLimit    = time.Second
)

// process is the program of a hook, with all that it started.
type process struct {
	command *exec.Cmd
	address *url.URL
	ended   chan struct{}
	// err may be read when ended is closed.
	err error
}

// start starts a command in a folder, and waits until something listens at the address. It gets the port in the environment variable PORT,
// and prints to out.
func start(ctx context.Context, command, folder string, address *url.URL, out io.Writer) (*process, error) {
	if listens(ctx, address) {
		return nil, fmt.Errorf("something listens at %s already: end it, or have the hook at another port with --hook", origin.Address(address))
	}
	p := &process{command: shell(ctx, command), address: address, ended: make(chan struct{})}
	p.command.Dir, p.command.Stdout, p.command.Stderr = folder, out, out
	// Python keeps what it prints to a file or a pipe, and loses it when it is ended; an author who wants that says so.
	p.command.Env = append(append([]string{"PYTHONUNBUFFERED=1"}, os.Environ()...), "PORT="+origin.Port(address), "HOST="+address.Hostname())
	// What it started may keep our pipe open.
	p.command.WaitDelay = time.Second
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("starting %q: %w: say how the hook is started with --exec", command, err)
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	if err := p.await(ctx); err != nil {
		p.stop(ctx)
		return nil, fmt.Errorf("%q: %w", command, err)
	}
	return p, nil
}

// await waits until it listens.
func (p *process) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf(
		"it does not listen at %s after %s: say where it listens with --hook; it finds the port in the environment variable PORT", origin.Address(p.address), startLimit))
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, dialInterval, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.ended:
			return false, p.endedError()
		default:
			return listens(ctx, p.address), nil
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// endedError says that the program ended by itself. The channel ended must be closed.
func (p *process) endedError() error {
	if p.err != nil {
		return fmt.Errorf("it ended before it listened (%w); what it printed says why", p.err)
	}
	return errors.New("it ended before it listened; it must run until it is stopped")
}

// stop ends the program and what it started, and waits until it has ended and listens no more. It does so as well if the context has ended.
func (p *process) stop(ctx context.Context) {
	interrupt(p.command)
	select {
	case <-p.ended:
	case <-time.After(endLimit):
	}
	kill(p.command)
	<-p.ended
	// What the program started may take a moment longer. If something goes on listening, the next start says so.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, dialInterval, true, func(ctx context.Context) (bool, error) { return !listens(ctx, p.address), nil })
}

// listens reports whether a connection to an address can be made.
func listens(ctx context.Context, address *url.URL) bool {
	connection, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, "tcp", origin.Address(address))
	if err != nil {
		return false
	}
	_ = connection.Close() // Nothing was sent.
	return true
}
