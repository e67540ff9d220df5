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

// Command demo shows HelloWorld from end to end on this machine: it starts a local control plane and the server that
// `make build` made, registers the one at the other, applies artifacts/examples/hello-world with kubectl, and waits for
// the Pod. It is what `make run` and `make demo` start, from the repository's root.
//
// Every process that it starts ends with it, and everything that it writes is in one temporary directory that it
// removes. Ports are random unless --port names one, so that several can run at the same time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.BoolVar(&o.once, "once", false, "exit after showing the result")
	flags.Func("port", "port of the server on 127.0.0.1; empty or 0: a free one", func(s string) (err error) {
		if s != "" {
			o.port, err = strconv.Atoi(s)
		}
		return err
	})
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}

	return play(ctx, o, os.Stdout)
}
