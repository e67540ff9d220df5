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

package parents

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// defaultInterval is how often --watch asks.
const defaultInterval = 2 * time.Second

// states are those that parents may have.
var states = []cobra.Completion{
	string(v1alpha1.ParentSynced), string(v1alpha1.ParentPending), string(v1alpha1.ParentSyncing), string(v1alpha1.ParentFailing),
	string(v1alpha1.ParentWaiting), string(v1alpha1.ParentHeld), string(v1alpha1.ParentPaused),
}

// options are the flags.
type options struct {
	flags     subresource.Flags
	format    *outputformat.Flags
	state     string
	watch     bool
	interval  time.Duration
	noHeaders bool
}

// NewCommand returns the command parents.
func NewCommand(c *connection.Connection) *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "parents CONTROLLER [NAMESPACE/PARENT]",
		Short: "Tell how a controller is doing with each of its parents",
		Long: `Tell how a controller is doing with its parents: one, those of the namespace, or with --all those of all namespaces. It is read from the
memory of the server. STATE is Synced, Pending, Syncing, Failing, Waiting, Held or Paused.

With --watch, parents are printed again when something of them changed.`,
		Example: `  # Those that fail, with their errors
  kubectl metacontroller parents cc/website --all --state=Failing

  # Follow those of a namespace
  kubectl metacontroller -n shop parents cc/website --watch`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: subresource.Complete(c),
		RunE:              c.RunE(o.run),
	}
	flags := cmd.Flags()
	o.flags.Add(flags)
	o.format = outputformat.ForList(cmd, outputformat.Wide, outputformat.Name)
	flags.StringVar(&o.state, "state", "", "state of the parents, such as Failing")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp)) // The flag is there.
	flags.BoolVarP(&o.watch, "watch", "w", false, "print parents again when something of them changed")
	flags.DurationVar(&o.interval, "interval", defaultInterval, "how often --watch asks")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "print no headers")
	return cmd
}

func (o *options) run(ctx context.Context, c *connection.Connection, args []string) error {
	if o.interval <= 0 {
		return errors.New("--interval must be more than 0: use a duration such as 2s")
	}
	printer, err := o.format.Printer()
	if err != nil {
		return err
	}
	names := o.format.Is(outputformat.Name)
	if o.watch && (names || printer != nil) {
		return errors.New("--watch prints tables only: leave --output and --template out")
	}
	object, selected, client, err := o.flags.Open(ctx, c, args)
	if err != nil {
		return err
	}
	for _, state := range states {
		if strings.EqualFold(o.state, state) {
			o.state = state
		}
	}
	asked := selected.ParentOptions()
	asked.State = o.state
	list, err := client.Parents(ctx, asked)
	if err != nil {
		return err
	}
	subresource.ReportHidden(c.ErrOut, list.Hidden)
	switch {
	case printer != nil:
		err = printer.PrintObj(list, c.Out)
	case names:
		err = printNames(c.Out, list.Items)
	}
	if printer != nil || names {
		if err == nil && len(list.Items) == 0 && selected.Name != "" {
			err = o.nothing(ctx, c, object, selected, client, list.Hidden > 0)
		}
		return err
	}
	t := newTable(selected.Table(object, o.format.Is(outputformat.Wide)), c.Out)
	if len(list.Items) > 0 {
		if err := t.print(time.Now(), list.Items, !o.noHeaders); err != nil {
			return err
		}
	} else if err := o.nothing(ctx, c, object, selected, client, list.Hidden > 0); err != nil || !o.watch {
		return err
	}
	if !o.watch {
		return nil
	}
	return o.follow(ctx, c, client, asked, t, list.Items)
}

// nothing says that there are no such parents. That there is none of a name is an error.
func (o *options) nothing(
	ctx context.Context, c *connection.Connection, object controllerobject.Object, selected subresource.Selected, client *subresource.Client, hidden bool,
) error {
	if o.state != "" {
		if missing, err := client.Missing(ctx, selected); err != nil {
			return err
		} else if missing {
			return selected.Nothing(c.ErrOut, object)
		}
	}
	switch {
	case o.state != "":
		fmt.Fprintf(c.ErrOut, "No parent is %s.\n", o.state)
	case !hidden:
		return selected.Nothing(c.ErrOut, object)
	}
	return nil
}

// passing reports whether an error may be gone when the parents are asked for again.
func passing(err error) bool {
	var network net.Error
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || errors.As(err, &network)
}

// follow prints parents that changed until the context ends.
func (o *options) follow(
	ctx context.Context, c *connection.Connection, client *subresource.Client, asked v1alpha1.ControllerParentOptions, t *table, before []v1alpha1.ControllerParent,
) error {
	err := wait.PollUntilContextCancel(ctx, o.interval, false, func(ctx context.Context) (bool, error) {
		list, err := client.Parents(ctx, asked)
		if ctx.Err() == nil && passing(err) {
			// Another replica takes over, or the server starts again.
			fmt.Fprintln(c.ErrOut, err)
			return false, nil
		}
		if err != nil {
			return false, err
		}
		changed := changes(before, list.Items)
		before = list.Items
		return false, t.print(time.Now(), changed, false)
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Ctrl-C is how it ends.
	}
	return err
}
