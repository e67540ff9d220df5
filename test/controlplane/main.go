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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/build"
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
  common flag:
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
		return s.run(ctx, *module, std)
	}
	fmt.Fprint(std.err, usage)
	return errUsage
}
