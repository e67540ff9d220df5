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

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
)

// headerTimeout is how long a browser may take to send the head of a request.
const headerTimeout = 10 * time.Second

// options are the flags.
type options struct {
	port                uint16
	noBrowser, readOnly bool
}

// NewCommand returns the command dashboard.
func NewCommand(c *connection.Connection) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "dashboard [NAME]",
		Short: "Show controllers, their parents and what syncs do in a browser",
		Long: `Show controllers, their parents and what syncs do in a browser, with the rights of your kubeconfig, until Ctrl-C. Nothing is installed in
the cluster. The page is served on 127.0.0.1 alone, to whoever has the address with its secret that is printed. What you may not read is shown
as forbidden, and values of Secrets are not shown. Syncs, pauses and rollbacks are asked for on a page that says what they do first.`,
		Example: `  # All controllers
  kubectl metacontroller dashboard

  # One of them, without the actions, at a port of your choice
  kubectl metacontroller dashboard cc/website --read-only --port 8080 --no-browser`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.CompleteName,
		RunE:              c.RunE(o.run),
	}
	flags := cmd.Flags()
	flags.Uint16Var(&o.port, "port", 0, "port of 127.0.0.1 to listen on; 0 is one that is free")
	flags.BoolVar(&o.noBrowser, "no-browser", false, "print the address, and open no browser")
	flags.BoolVar(&o.readOnly, "read-only", false, "offer no actions: resync, pause, resume and rollback")
	return cmd
}

func (o *options) run(ctx context.Context, c *connection.Connection, args []string) error {
	start := "/"
	if len(args) == 1 {
		object, err := c.Find(ctx, args[0])
		if err != nil {
			return err
		}
		start = link("/controller", "c", object.Argument())
	} else if _, err := c.Config(); err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(o.port))))
	if err != nil {
		return fmt.Errorf("listening on 127.0.0.1: %w: choose another port with --port, or leave it out", err)
	}
	s := newServer(c, listener.Addr().String(), o.readOnly)
	address := s.address(start)
	fmt.Fprintf(c.Out, "The dashboard is at %s\nWhoever has this address has your rights in it. Ctrl-C ends it.\n", address)
	if !o.noBrowser {
		if err := openBrowser(ctx, address); err != nil {
			fmt.Fprintf(c.ErrOut, "No browser was opened: %v. Open the address yourself.\n", err)
		}
	}
	return serve(ctx, listener, s)
}

// serve answers requests until the context ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Pages that are open would keep it going.
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the dashboard: %w", err)
	}
	return nil
}

// openBrowser opens an address by the program that the system has for it.
func openBrowser(ctx context.Context, address string) error {
	program, arguments := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		program = "open"
	case "windows":
		program, arguments = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	cmd := exec.CommandContext(ctx, program, arguments...)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // A browser that is started by it may live as long as it likes; it ends with the context.
	return nil
}
