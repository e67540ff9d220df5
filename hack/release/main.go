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
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = "usage: release image|artifacts [flags]; make image and make release-artifacts give the flags"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	r := release{out: out}
	var date, platforms string
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&r.root, "root", "", "the repository")
	flags.StringVar(&r.version, "version", "", "version that is stamped in and that names the files, such as v1.2.3")
	flags.StringVar(&r.commit, "commit", "", "commit that is stamped in")
	flags.StringVar(&date, "date", "", "date of the commit, as in 2026-01-02T03:04:05Z: that of every file in archives and images")
	flags.StringVar(&r.folder, "folder", "", "where everything is written; what is there is removed")
	flags.StringVar(&r.repository, "image", "", "name of the image without a version, such as registry.example.org/metacontroller-apiserver")
	command := r.writeArtifacts
	switch args[0] {
	case "image":
		flags.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "platforms that the image is for")
		command = r.writeImage
	case "artifacts":
		flags.StringVar(&r.uri, "uri", "", "where the archives will be published, without their names")
	default:
		return errors.New(usage)
	}
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if r.root == "" || r.version == "" || r.commit == "" || r.folder == "" || r.repository == "" || args[0] == "artifacts" && r.uri == "" {
		return errors.New("all flags must be given: " + usage)
	}
	var err error
	if r.date, err = time.Parse(time.RFC3339, date); err != nil {
		return fmt.Errorf("--date: %w", err)
	}
	if err := r.prepare(platforms); err != nil {
		return err
	}
	return command(ctx)
}
