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
  start   build, start a control plane, and stay until Ctrl-C; flags:
            --with-stdin   end when standard input is closed, too
            --fsync        let etcd wait for the disk
  common flag:
            --module DIR   the folder of this Go module (default ".")
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return fmt.Errorf("no command given")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	module := flags.String("module", ".", "")
	withStdin := flags.Bool("with-stdin", false, "")
	fsync := flags.Bool("fsync", false, "")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "build":
		_, err := build.Programs(ctx, *module, os.Stderr)
		return err
	case "path":
		folder, err := build.Folder(*module)
		if err == nil {
			fmt.Println(folder)
		}
		return err
	case "start":
		return start(ctx, *module, *withStdin, *fsync)
	}
	fmt.Fprint(os.Stderr, usage)
	return fmt.Errorf("unknown command %q", args[0])
}

func start(ctx context.Context, module string, withStdin, fsync bool) error {
	programs, err := build.Programs(ctx, module, os.Stderr)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "control-plane-")
	if err != nil {
		return fmt.Errorf("creating a folder for the control plane: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if withStdin {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go func() {
			// The one who started us holds the other end; when it is gone, however it went, this returns.
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	running, err := plane.Start(ctx, plane.Options{Programs: programs, Folder: folder, Fsync: fsync})
	if err != nil {
		return err
	}
	defer running.Stop()
	info := running.Info()
	if err := json.NewEncoder(os.Stdout).Encode(info); err != nil {
		return fmt.Errorf("telling how to reach the control plane: %w", err)
	}
	fmt.Fprintf(os.Stderr, "The control plane is ready. No container runs in it; see test/controlplane/README.md. Use it with\n\n"+
		"  export KUBECONFIG=%s\n  export PATH=%s:$PATH\n\nCtrl-C ends it.\n", info.Kubeconfig, filepath.Dir(info.Kubectl))
	select {
	case <-ctx.Done():
		return nil
	case err := <-running.Died():
		return err
	}
}
