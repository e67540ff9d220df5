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
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/build"
	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/plane"
)

// errStdinClosed is why a control plane ends that was started with --with-stdin.
var errStdinClosed = errors.New("standard input was closed")

// starter runs the command start.
type starter struct {
	dir                    string
	keep, withStdin, fsync bool
	audit, frugal          bool
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
func (s *starter) run(ctx context.Context, module string, std stdio) error {
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
	programs, err := build.Programs(ctx, module, std.err)
	if err != nil {
		return err
	}
	folder, err := s.folder()
	if err != nil {
		return err
	}
	return errors.Join(s.runIn(ctx, folder, programs, std), s.leave(folder, std))
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

func (s *starter) runIn(ctx context.Context, folder *plane.Folder, programs string, std stdio) error {
	running, err := plane.Start(ctx, plane.Options{Programs: programs, Folder: folder, Fsync: s.fsync, Audit: s.audit, Frugal: s.frugal})
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
	select {
	case <-ctx.Done():
		return nil
	case err := <-running.Died():
		return err
	}
}
