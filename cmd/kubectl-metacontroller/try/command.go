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

package try

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/localhook"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/plan"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
)

// options are the flags.
type options struct {
	flags  subresource.Flags
	output plan.Output
	hook   localhook.Flags
}

// NewCommand returns the command try.
func NewCommand(c *connection.Connection) *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "try (CONTROLLER | -f FILE) [NAMESPACE/PARENT] [--hook URL] [--exec COMMAND]",
		Short: "Show what a hook on this machine, or in a file, would do to live parents, without doing it",
		Long: `Show what a hook on this machine would do to the live parents of a controller, without doing it. The server gives the requests that its
hooks would get now. The hook on this machine responds to them, and the server plans with these responses. Nothing
in the cluster changes, and the cluster needs no way to the hook. In requests, values of Secrets are hidden; one that the hook returns in a Secret
counts as the value that there is.

Related objects are those that the customize hook of the running controller selects.

With --exec the hook is started, and it is used when it listens; with --watch it is started again, and everything is shown again, when a file
in its folder changes. What it prints goes to the standard error.

With -f, the inline hooks are those of the definition in the file, as with the command plan; with --watch everything is shown again when the
file changes.

The exit status is 0 if nothing would change, and 1 if something would. It is greater if that could not be found out, or if a sync would fail.`,
		Example: `  # What would the hook in this folder do to one parent? Again after every change of a file.
  kubectl metacontroller try cc/website shop/example --exec 'python3 hook.py' --watch

  # What would the inline hooks in this file do to all parents? Again whenever it is edited.
  kubectl metacontroller try -f controller.yaml --all --watch

  # To all parents, with a hook that runs already
  kubectl metacontroller try cc/website --all --hook http://localhost:8080/sync`,
		Args:              cobra.RangeArgs(0, 2),
		ValidArgsFunction: subresource.Complete(c),
		RunE:              c.RunE(o.run),
	}
	flags := cmd.Flags()
	o.flags.Add(flags)
	o.output.Add(flags)
	o.hook.Add(flags, localhook.DefaultHook)
	o.hook.AddFilename(flags, "file or folder with a definition in place of the stored one, whose hooks are inline")
	o.hook.AddWatch(flags, "show everything")
	return exitstatus.Compares(cmd)
}

func (o *options) run(ctx context.Context, c *connection.Connection, args []string) error {
	switch named := o.hook.Named(); {
	case o.hook.Filename != "" && named:
		return fmt.Errorf("the hooks of -f are inline, or webhooks that the server calls: leave out --hook and --exec, or write '%s plan -f %s --hook URL'",
			connection.Program, o.hook.Filename)
	case o.hook.Filename != "":
		return o.hook.Run(ctx, c.ErrOut, func(ctx context.Context, _ *localhook.Hook) error {
			return plan.File(ctx, c, o.flags, o.output, o.hook.Filename, args)
		})
	case len(args) == 0:
		return fmt.Errorf("name a controller, or a file with -f: %s try cc/NAME", connection.Program)
	}
	object, selected, client, err := o.flags.Open(ctx, c, args)
	if err != nil {
		return err
	}
	if _, err := o.output.Report(c); err != nil {
		return err
	}
	if object.Inline() && !o.hook.Named() {
		return fmt.Errorf("the hooks of %s are inline: try a file with '%s try -f FILE', or a hook on this machine with --hook", object.Argument(), connection.Program)
	}
	if object.Customizes() {
		fmt.Fprintf(c.ErrOut, "The related objects are those that the customize hook of the running %s selects.\n", object.Argument())
	}
	t := trial{client: client, check: o.output.Check}
	return o.hook.Run(ctx, c.ErrOut, func(ctx context.Context, hook *localhook.Hook) error {
		report, err := o.output.Report(c)
		if err != nil {
			return err
		}
		if err := t.all(ctx, hook, selected, report); err != nil {
			return err
		}
		return report.End(object, selected)
	})
}
