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

package rollback

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// options are the flags.
type options struct {
	revision string
	dryRun   bool
}

// NewCommand returns the command rollback.
func NewCommand(c *connection.Connection) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "rollback CONTROLLER NAMESPACE/PARENT",
		Short: "Give a parent the fields of a former revision back",
		Long: `Give a parent of a CompositeController the fields of a former revision back, during a rolling update that does not go well. Its children
follow, one by one, as in every rolling update. Ten former revisions are kept, or as many as revisionHistory.limit says. It takes the right to update the parent.
Whoever applies the parent from elsewhere, such as from a Git repository, writes the later fields again.`,
		Example: `  # What would change
  kubectl metacontroller rollback cc/website shop/example --dry-run
  kubectl metacontroller rollback cc/website shop/example
  # Not to the previous revision, but to another one
  kubectl -n shop get controllerrevisions.metacontroller.k8s.io
  kubectl metacontroller rollback cc/website shop/example --to-revision=websites.example.com-2f1d`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: subresource.Complete(c),
		RunE:              c.RunE(o.run),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.revision, "to-revision", v1alpha1.RevisionPrevious, "name of a ControllerRevision of the parent")
	flags.BoolVar(&o.dryRun, "dry-run", false, "say what would change, and change nothing")
	return cmd
}

func (o *options) run(ctx context.Context, c *connection.Connection, args []string) error {
	object, selected, client, err := new(subresource.Flags).Open(ctx, c, args)
	if err != nil {
		return err
	}
	if object.Composite == nil {
		return fmt.Errorf("parents of DecoratorControllers have no revisions: write %s as it was, and see what would come of it with '%s plan %s %s'",
			args[1], connection.Program, object.Argument(), args[1])
	}
	done, err := client.Rollback(ctx, v1alpha1.ControllerRollbackSpec{
		Namespace: selected.Namespace, Name: selected.Name, Revision: o.revision,
	}, o.dryRun)
	if err != nil {
		return err
	}
	parent := v1alpha1.ParentReference{Namespace: selected.Namespace, Name: selected.Name}.FullName()
	if len(done.Changes) == 0 && done.From != done.Revision {
		return fmt.Errorf("%s is still on revision %s: what admits it gave its fields back; see the admission webhooks and policies of its kind", parent, done.From)
	}
	o.print(c.Out, object, parent, done)
	return nil
}

// print says what was done.
func (o *options) print(out io.Writer, object controllerobject.Object, parent string, done *v1alpha1.ControllerRollbackStatus) {
	if len(done.Changes) == 0 {
		fmt.Fprintf(out, "%s has the fields of revision %s already: nothing is written.\n", parent, done.Revision)
		return
	}
	is := "is"
	if o.dryRun {
		is = "would be"
	}
	fmt.Fprintf(out, "%s %s rolled back from revision %s to %s:\n", parent, is, done.From, done.Revision)
	for _, change := range done.Changes {
		fmt.Fprintf(out, "  %s: %s -> %s\n", change.Path, ptr.Deref(change.Observed, "absent"), ptr.Deref(change.Desired, "absent"))
	}
	if o.dryRun {
		fmt.Fprintf(out, "Nothing is written. What the children would become by that is not shown; they follow in a rolling update.\n")
		return
	}
	fmt.Fprintf(out, "See how its children follow with: %s parents %s %s\n", connection.Program, object.Argument(), parent)
}
