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

package syncs

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
)

// mostSyncs is the largest limit of the server.
const mostSyncs = 500

// options are the flags.
type options struct {
	flags     subresource.Flags
	format    *outputformat.Flags
	limit     int64
	noHeaders bool
}

// NewCommand returns the command syncs.
func NewCommand(c *connection.Connection) *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "syncs CONTROLLER [NAMESPACE/PARENT]",
		Short: "Tell what the recent syncs of a controller did, and why",
		Long: `Tell what the recent syncs of a controller did, the latest first: of one parent, those of the namespace, or with --all those of all
namespaces. TRIGGER is why the parent was synced, WAIT how long it waited for the sync, and HOOK how long the calls of hooks took.
CHILDREN are those that were written, or could not be. It is read from the memory of the server, which forgets the oldest syncs.`,
		Example: `  # Why a parent is synced again and again
  kubectl metacontroller syncs cc/website shop/example
  # The fields that changed, too
  kubectl metacontroller -n shop syncs cc/website -o yaml`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: c.CompleteName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), c, args)
		},
	}
	flags := cmd.Flags()
	o.flags.Add(flags)
	o.format = outputformat.ForList(cmd, outputformat.Wide)
	flags.Int64Var(&o.limit, "limit", 0, "how many syncs are printed at most, up to 500; 0 leaves it to the server")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "print no headers")
	return cmd
}

func (o *options) run(ctx context.Context, c *connection.Connection, args []string) error {
	if o.limit < 0 || o.limit > mostSyncs {
		return fmt.Errorf("--limit must be 0 to %d, is %d", mostSyncs, o.limit)
	}
	printer, err := o.format.Printer()
	if err != nil {
		return err
	}
	object, selected, client, err := o.flags.Open(ctx, c, args)
	if err != nil {
		return err
	}
	list, err := client.Syncs(ctx, selected.SyncOptions(o.limit))
	if err != nil {
		return err
	}
	subresource.ReportHidden(c.ErrOut, list.Hidden)
	if len(list.Items) == 0 && list.Hidden == 0 {
		if missing, err := client.Missing(ctx, selected); err != nil {
			return err
		} else if missing {
			return selected.Nothing(c.ErrOut, object)
		}
	}
	if printer != nil {
		return printer.PrintObj(list, c.Out)
	}
	if len(list.Items) == 0 {
		_, err := fmt.Fprintf(c.ErrOut, "No sync is remembered: see '%s parents %s --all'\n", connection.Program, object.Argument())
		return err
	}
	t := table{selected.Table(object, o.format.Is(outputformat.Wide))}
	if err := t.print(c.Out, time.Now(), list.Items, !o.noHeaders); err != nil {
		return err
	}
	if older := ptr.Deref(list.RemainingItemCount, 0); older > 0 {
		_, err = fmt.Fprintf(c.ErrOut, "%d older ones are not printed: --limit takes up to %d, and the name of a parent leaves out the others.\n", older, mostSyncs)
	}
	return err
}
