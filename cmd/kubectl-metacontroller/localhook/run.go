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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
)

// DefaultHook is where hooks that init writes listen.
const DefaultHook = "http://localhost:8080/sync"

// Flags say where the hook is and how it is started.
type Flags struct {
	// Filename is a file or folder with a controller, empty if none is named. It is watched in place of the folder of the hook.
	Filename string

	hooks           []string
	exec, directory string
	watch           bool
	// named tells whether an address was named, and is nil if no command line was read.
	named func() bool
}

// Add adds the flags to those of a command. Without a default, no hook is called unless one is given.
func (f *Flags) Add(flags *pflag.FlagSet, byDefault ...string) {
	flags.StringArrayVar(&f.hooks, "hook", byDefault, "address of the sync hook; HOOK=URL for another hook, if that is not beside it")
	f.named = func() bool { return flags.Changed("hook") }
	flags.StringVar(&f.exec, "exec", "", "command that starts the hook, such as 'python3 hook.py'; it gets the port in the environment variable PORT, and the host in HOST; "+
		"without --hook a free port, if 8080 is not")
	flags.StringVar(&f.directory, "directory", ".", "folder of the hook, in which it is started")
}

// AddWatch adds the flag --watch.
func (f *Flags) AddWatch(flags *pflag.FlagSet, does string) {
	flags.BoolVarP(&f.watch, "watch", "w", false, does+" again, after a restart of what --exec started, when files in the folder of the hook change")
}

// AddFilename adds the flag --filename.
func (f *Flags) AddFilename(flags *pflag.FlagSet, usage string) {
	flags.StringVarP(&f.Filename, "filename", "f", "", usage)
}

// Named returns whether an address was named, or a hook is to be started.
func (f *Flags) Named() bool { return f.exec != "" || f.named != nil && f.named() }

// Given returns whether a hook was named or is to be started.
func (f *Flags) Given() bool { return len(f.hooks) > 0 || f.exec != "" }

// Run starts the hook, if it is to be started, and has it used, once or again after every change until the context ends. What the hook
// prints goes to errOut, and so do the errors of uses that are followed by others. The error is that of the last use.
func (f *Flags) Run(ctx context.Context, errOut io.Writer, use func(context.Context, *Hook) error) error {
	hooks := f.hooks
	switch {
	case f.Filename != "" && !f.Named():
		hooks = nil // Those of the file are inline.
	case len(hooks) == 0:
		hooks = []string{DefaultHook}
	}
	h, err := New(hooks)
	if err == nil && f.exec != "" && f.named != nil && !f.named() && listens(ctx, h.first()) {
		h, err = onFreePort(ctx) // Another one runs there, such as that of make run.
	}
	if err != nil {
		return err
	}
	if !f.watch {
		return f.once(ctx, h, errOut, func() {}, use)
	}
	// The first change may come while the hook is started or used.
	w, err := NewWatch(cmp.Or(f.Filename, f.directory))
	if err != nil && f.Filename == "" {
		err = fmt.Errorf("%w: name the folder of the hook with --directory", err)
	}
	if err != nil {
		return err
	}
	err = f.untilTheEnd(ctx, h, w, errOut, use)
	return errors.Join(err, w.Close())
}

// onFreePort returns a hook at a free port of this machine. A program that is started finds the port in its environment.
func onFreePort(ctx context.Context) (*Hook, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "localhost:0")
	if err != nil {
		return nil, fmt.Errorf("looking for a free port: %w: name one with --hook", err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err := errors.Join(err, listener.Close()); err != nil {
		return nil, fmt.Errorf("looking for a free port: %w: name one with --hook", err)
	}
	return New([]string{"http://localhost:" + port + "/sync"})
}

// once uses the hook, and ends it. If it is to be started, started is called when it listens, or has ended.
func (f *Flags) once(ctx context.Context, h *Hook, errOut io.Writer, started func(), use func(context.Context, *Hook) error) error {
	if f.exec != "" {
		p, err := start(ctx, f.exec, f.directory, h.first(), errOut)
		started()
		if err != nil {
			return err
		}
		defer p.stop(ctx)
	}
	return use(ctx, h)
}

// untilTheEnd uses the hook, and again when files changed. Errors of a use are printed: the next change may be the cure.
func (f *Flags) untilTheEnd(ctx context.Context, h *Hook, w *Watch, errOut io.Writer, use func(context.Context, *Hook) error) error {
	edits := NewEdits()
	for {
		var names []string
		var failed error
		changed := func() {
			if failed != nil {
				return
			}
			var more []string
			more, failed = w.Changed(ctx)
			names = append(names, edits.DuringUse(w.Folder(), more)...)
		}
		err := f.once(ctx, h, errOut, changed, use)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C is how it ends.
		}
		if _, message := exitstatus.Of(err); message != nil {
			fmt.Fprintln(errOut, "Error:", message)
		}
		changed()
		if failed == nil && len(names) == 0 {
			fmt.Fprintf(errOut, "Waiting for changes of files in %s. Ctrl-C ends it.\n", cmp.Or(f.Filename, f.directory))
			names, failed = w.Wait(ctx)
			edits.ByAuthor(w.Folder(), names)
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // The same.
		}
		if failed != nil {
			return failed
		}
		fmt.Fprintf(errOut, "Changed: %s\n", strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ", "))
		if f.exec == "" && h.first() != nil {
			f.awaitListening(ctx, h)
		}
	}
}

// awaitListening waits a while until a hook listens that its author restarts himself.
func (*Flags) awaitListening(ctx context.Context, h *Hook) {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	// If it does not listen, the call says so.
	_ = wait.PollUntilContextCancel(ctx, dialInterval, true, func(ctx context.Context) (bool, error) { return listens(ctx, h.first()), nil })
}
