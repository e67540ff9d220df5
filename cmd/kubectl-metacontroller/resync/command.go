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

package resync

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
)

// NewCommand returns the command resync.
func NewCommand(c *connection.Connection) *cobra.Command {
	var flags subresource.Flags
	cmd := &cobra.Command{
		Use:   "resync CONTROLLER [NAMESPACE/PARENT]",
		Short: "Have parents synced now",
		Long: `Have parents of a controller synced now, and not only when something changes: one, those of the namespace, or with --all those of all
namespaces.`,
		Example: `  kubectl metacontroller resync cc/website shop/example
  kubectl metacontroller resync cc/website --all`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: subresource.Complete(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), c, &flags, args)
		},
	}
	flags.Add(cmd.Flags())
	return cmd
}

func run(ctx context.Context, c *connection.Connection, flags *subresource.Flags, args []string) error {
	object, selected, client, err := flags.Open(ctx, c, args)
	if err != nil {
		return err
	}
	done, err := client.Resync(ctx, &selected.ParentSelection)
	if err != nil {
		return err
	}
	if done.Status.Hidden > 0 && done.Status.Parents == 0 {
		return errors.New(subresource.Hidden(done.Status.Hidden))
	}
	subresource.ReportHidden(c.ErrOut, done.Status.Hidden)
	if done.Status.Parents == 0 {
		return selected.Nothing(c.Out, object)
	}
	fmt.Fprint(c.Out, outputformat.Count(done.Status.Parents, "parent is", "parents are"))
	if object.Paused() {
		fmt.Fprintf(c.Out, " in the queue, and synced when %s is resumed: it is paused. Resume it with: %s resume %[1]s\n", object.Argument(), connection.Program)
		return nil
	}
	fmt.Fprintf(c.Out, " in the queue. See how it goes with: %s parents %s%s\n", connection.Program, object.Argument(), selected.Arguments())
	return nil
}
