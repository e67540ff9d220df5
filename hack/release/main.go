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

// Command release writes what a release publishes, from the repository's root: archives of the plugin of kubectl and of the server, the
// file SHA256SUMS, and the manifest with which krew installs the plugin. `make release-artifacts` starts it.
//
// The same commit and the same version of Go give the same bytes, wherever and whenever it runs: no path, time, user or environment of
// the machine gets into programs and archives.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var r release
	var date string
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "version that is stamped in and that names the archives, such as v1.2.3")
	flags.StringVar(&r.commit, "commit", "", "commit that is stamped in")
	flags.StringVar(&date, "date", "", "date of the commit, as in 2026-01-02T03:04:05Z: that of every file in the archives")
	flags.StringVar(&r.folder, "folder", "", "where everything is written; what is there is removed")
	flags.StringVar(&r.uri, "uri", "", "where the archives will be published, without their names")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if r.version == "" || r.commit == "" || r.folder == "" || r.uri == "" {
		return errors.New("--version, --commit, --date, --folder and --uri must be given; make release-artifacts does so")
	}
	var err error
	if r.date, err = time.Parse(time.RFC3339, date); err != nil {
		return fmt.Errorf("--date: %w", err)
	}
	r.root = "."
	r.build = (&compiler{release: &r}).build
	return r.write(ctx, os.Stdout)
}
