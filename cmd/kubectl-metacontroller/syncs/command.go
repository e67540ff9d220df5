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
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// mostSyncs is the largest limit of the server.
const mostSyncs = 500

// options are the flags.
type options struct {
	flags     subresource.Flags
	format    *outputformat.Flags
	limit     int64
	noHeaders bool
	// changed and failed leave out other syncs.
	changed, failed bool
}

// filter returns the syncs that are asked for.
func (o *options) filter(syncs []v1alpha1.ControllerSync) []v1alpha1.ControllerSync {
	return slices.DeleteFunc(syncs, func(s v1alpha1.ControllerSync) bool {
		return o.changed && Nothing(&s) || o.failed && s.Error == ""
	})
}

// NewCommand returns the command syncs.
func NewCommand(c *connection.Connection) *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "syncs CONTROLLER [NAMESPACE/PARENT]",
		Short: "Show what the recent syncs of a controller did, and why",
		Long: `Show what the recent syncs of a controller did, the latest first: of one parent, those of the namespace, or with --all those of all
namespaces. TRIGGER is why the parent was synced, HOOK how long the calls of hooks took, and RESULT what was written, or could not be.
Syncs in a row that did nothing, or failed in the same way, are one line, with the time of the first one. With -o wide they are not, texts
are whole, and WAIT is how long the parent waited for the sync. It is read from the memory of the server, which forgets the oldest syncs.`,
		Example: `  # Why a parent is synced again and again
  kubectl metacontroller syncs cc/website shop/example
  # The fields that changed, too
  kubectl metacontroller -n shop syncs cc/website -o yaml`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: subresource.Complete(c),
		RunE:              c.RunE(o.run),
	}
	flags := cmd.Flags()
	o.flags.Add(flags)
	o.format = outputformat.ForList(cmd, outputformat.Wide)
	flags.Int64Var(&o.limit, "limit", 0, "how many syncs are printed at most, up to 500; 0 leaves it to the server")
	flags.BoolVar(&o.changed, "changed", false, "print only syncs that did something, or failed")
	flags.BoolVar(&o.failed, "failed", false, "print only syncs that failed")
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
		list.Items = o.filter(list.Items)
		return printer.PrintObj(list, c.Out)
	}
	if len(list.Items) == 0 {
		_, err := fmt.Fprintf(c.ErrOut, "No sync is remembered, since there was none, or its parent is gone: see '%s parents %s --all'\n", connection.Program, object.Argument())
		return err
	}
	shown := o.filter(list.Items)
	if len(shown) == 0 {
		_, err := fmt.Fprintf(c.ErrOut, "None of the last %d syncs is among those that are asked for.\n", len(list.Items))
		return err
	}
	t := table{selected.Table(object, o.format.Is(outputformat.Wide))}
	if err := t.print(c.Out, shown, !o.noHeaders); err != nil {
		return err
	}
	if older := ptr.Deref(list.RemainingItemCount, 0); older > 0 {
		_, err = fmt.Fprintf(c.ErrOut, "%d older ones are not printed: --limit takes up to %d, and the name of a parent leaves out the others.\n", older, mostSyncs)
	}
	return err
}
