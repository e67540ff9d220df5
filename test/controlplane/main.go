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

// Command controlplane builds and runs a local Kubernetes control plane for development and tests. See README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/build"
	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/plane"
)

const usage = `usage: controlplane COMMAND [flags]

  build   build the programs of the control plane where they are missing
  path    print the folder of the programs
  start   build, start a control plane, print one line of JSON that says how to use it, and stay until Ctrl-C; flags:
            --dir DIR      keep everything under DIR, which must be empty or not exist (default: a temporary folder)
            --keep         leave the folder where it is at the end, for reading its logs
            --with-stdin   end when standard input is closed, too
            --fsync        let etcd wait for the disk
            --audit        have kube-apiserver write logs/audit.log, with a line of JSON for each request that writes
            --frugal       give each program but kube-apiserver one processor, for many control planes on a machine
  common flags:
            --soon         do not wait for kube-controller-manager: start builds it while the others run, and starts it then
            --module DIR   the folder of this Go module (default ".")

Environment: CONTROL_PLANE_CACHE is where the programs are kept, instead of the user's cache folder.
`

// errUsage was answered with the usage.
var errUsage = errors.New("this is how to use it")

// stdio are the streams of the command.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	os.Exit(mainCode(os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}))
}

func mainCode(args []string, std stdio) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, args, std)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	case err != nil:
		fmt.Fprintln(std.err, "controlplane:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, args []string, std stdio) error {
	if len(args) == 0 {
		fmt.Fprint(std.err, usage)
		return errUsage
	}
	var s starter
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(std.err)
	flags.Usage = func() { fmt.Fprint(std.err, usage) }
	module := flags.String("module", ".", "")
	soon := flags.Bool("soon", false, "")
	if args[0] == "start" {
		s.flags(flags)
	}
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return errUsage
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case args[0] == "build" && *soon:
		_, _, err := build.Soon(ctx, *module, std.err)
		return err
	case args[0] == "build":
		_, err := build.Programs(ctx, *module, std.err)
		return err
	case args[0] == "path":
		folder, err := build.Folder(*module)
		if err == nil {
			fmt.Fprintln(std.out, folder)
		}
		return err
	case args[0] == "start":
		s.module, s.soon = *module, *soon
		return s.run(ctx, std)
	}
	fmt.Fprint(std.err, usage)
	return errUsage
}

// errStdinClosed is why a control plane ends that was started with --with-stdin.
var errStdinClosed = errors.New("standard input was closed")

// starter runs the command start.
type starter struct {
	module, dir            string
	keep, withStdin, fsync bool
	audit, frugal, soon    bool
}

func (s *starter) flags(flags *flag.FlagSet) {
	flags.StringVar(&s.dir, "dir", "", "")
	flags.BoolVar(&s.keep, "keep", false, "")
	flags.BoolVar(&s.withStdin, "with-stdin", false, "")
	flags.BoolVar(&s.fsync, "fsync", false, "")
	flags.BoolVar(&s.audit, "audit", false, "")
	flags.BoolVar(&s.frugal, "frugal", false, "")
}

// run returns nil when it was told to end after the control plane was ready.
func (s *starter) run(ctx context.Context, std stdio) error {
	if s.withStdin {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		go func() {
			// The one who started us holds the other end; when it is gone, however it went, this returns. When we end for
			// another reason it stays until the process ends, which is at once.
			_, _ = io.Copy(io.Discard, std.in)
			cancel(errStdinClosed)
		}()
	}
	programs, incomplete, err := s.build(ctx, std)
	if err != nil {
		return err
	}
	folder, err := s.folder()
	if err != nil {
		return err
	}
	o := plane.Options{Programs: programs, Folder: folder, Fsync: s.fsync, Audit: s.audit, Frugal: s.frugal, WithoutControllers: incomplete}
	return errors.Join(s.runIn(ctx, o, std), s.leave(folder, std))
}

func (s *starter) build(ctx context.Context, std stdio) (programs string, incomplete bool, err error) {
	if s.soon {
		return build.Soon(ctx, s.module, std.err)
	}
	programs, err = build.Programs(ctx, s.module, std.err)
	return programs, false, err
}

func (s *starter) folder() (*plane.Folder, error) {
	if s.dir == "" {
		return plane.TemporaryFolder(os.TempDir())
	}
	return plane.NewFolder(s.dir)
}

// leave removes the folder, or tells where it is.
func (s *starter) leave(folder *plane.Folder, std stdio) error {
	if !s.keep {
		return folder.Remove()
	}
	folder.Close()
	fmt.Fprintln(std.err, "The control plane's files are left in", folder.Path)
	return nil
}

func (s *starter) runIn(ctx context.Context, o plane.Options, std stdio) error {
	running, err := plane.Start(ctx, o)
	if err != nil {
		return fmt.Errorf("starting the control plane: %w", err)
	}
	defer running.Stop()
	info := running.Info()
	fmt.Fprintf(std.err, "The control plane is ready. No container runs in it; see test/controlplane/README.md. Use it with\n\n"+
		"  export KUBECONFIG=%s\n  export PATH=%s:$PATH\n\nCtrl-C ends it.\n", info.Kubeconfig, filepath.Dir(info.Kubectl))
	if err := json.NewEncoder(std.out).Encode(info); err != nil {
		return fmt.Errorf("telling how to reach the control plane: %w", err)
	}
	var rest <-chan error
	if o.WithoutControllers {
		var wait func()
		rest, wait = s.buildRest(ctx, std)
		defer wait()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-running.Died():
			return err
		case err := <-rest:
			if err == nil {
				err = running.StartControllers(ctx)
			}
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("completing the control plane: %w", err)
			}
			rest = nil
		}
	}
}

// buildRest builds the programs that are missing still, until wait is called at the latest.
func (s *starter) buildRest(ctx context.Context, std stdio) (done <-chan error, wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	built, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_, err := build.Programs(ctx, s.module, std.err)
		built <- err
	}()
	return built, func() {
		cancel()
		<-ended
	}
}
