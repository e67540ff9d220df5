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

// Command demo is what `make run` and `make demo` start, from the repository's root: it starts a local control plane and the server that
// `make build` made, registers the one at the other, starts a hook, applies the manifests of its controller, and waits until the parents
// are synced. The hook is that of one of artifacts/examples (--example), or an author's own (--hook and --controller). It is started
// again when a file beside it changes, and manifests that change are applied; then all parents are synced, and a line says how that went. A hook
// that ends leaves everything else as it is.
//
// Every process that it starts ends with it, and everything that it writes is in temporary directories that it
// removes. Ports are random unless --port names one, so that several can run at the same time. The other programs of the repository are
// beside this one, in bin.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := untilTold(context.Background())
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// untilTold returns a context that is done when somebody wants the program to end: with Ctrl-C, by closing the terminal, or because nobody
// reads any more what is printed, as when the program after a pipe has ended, often by the same Ctrl-C. SIGPIPE would end this program at
// the next line, before it has removed what it wrote.
func untilTold(parent context.Context) (context.Context, context.CancelFunc) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE}
	// nohup wants a terminal to be closed without consequences.
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(parent, signals...)
}

// errUsage says that the arguments are wrong, which was printed.
var errUsage = errors.New("wrong arguments")

// options are what a person asks for.
type options struct {
	example string
	// hooks are the paths of programs, and controller those of manifests.
	hooks, controller []string
	// kubeconfig is that of a cluster that is there already, with the server in it. Empty: start both.
	kubeconfig  string
	once, check bool
	port        int
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&o.example, "example", "", "folder of artifacts/examples; without it and without --hook: "+defaultExample)
	flags.Func("hook", "program of a hook, which inline hooks do not need: .py, .js and .go files are run by python3, node and go run, any other is executed; or several, separated by spaces",
		func(s string) error {
			o.hooks = append(o.hooks, paths(s)...)
			return nil
		})
	flags.Func("controller", "files and folders with the manifests of the controller, separated by spaces; or one whose path has spaces; of several hooks one for each", func(s string) error {
		o.controller = append(o.controller, paths(s)...)
		return nil
	})
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "use this cluster, whose server runs on this machine, instead of starting one; what is applied stays there")
	flags.BoolVar(&o.check, "check", false, "check the other arguments, and start nothing")
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
		return errUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(flags.Output(), "unexpected argument %q\n", flags.Arg(0))
		flags.Usage()
		return errUsage
	}

	if o.check {
		_, err := o.project()
		return err
	}
	return play(ctx, o, os.Stdout)
}

// paths returns the paths in a text that separates them by spaces. One that exists may have spaces.
func paths(text string) []string {
	if _, err := os.Stat(text); err == nil {
		return []string{text}
	}
	return strings.Fields(text)
}
