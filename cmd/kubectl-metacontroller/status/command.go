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

package status

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// NewCommand returns the command status.
func NewCommand(c *connection.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Tell how a controller is doing, or all of them, and what to do next",
		Long: `Tell how a controller is doing, or all of them, and what to do next: whether it runs, its parents, its hooks, and the parents whose
last sync failed. Parents are as the server has them in memory now. What only the status of the controller objects has, or of more than 500
parents, says how old it is. Warnings are those of the last hour about the controller and its parents, the latest three.`,
		Example: `  # All controllers, with more about those in which something is wrong
  kubectl metacontroller status

  # All about one
  kubectl metacontroller status cc/hello-controller`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.CompleteName,
	}
	format := outputformat.ForObjects(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return run(cmd.Context(), c, format, args)
	}
	return cmd
}

func run(ctx context.Context, c *connection.Connection, format *outputformat.Flags, args []string) error {
	printer, err := format.Printer()
	if err != nil {
		return err
	}
	var objects []controllerobject.Object
	if len(args) == 1 {
		object, err := c.Find(ctx, args[0])
		if err != nil {
			return err
		}
		objects = append(objects, object)
	} else if objects, err = c.List(ctx); err != nil {
		return err
	}
	if printer != nil {
		return encode(c.Out, printer, objects, len(args) == 1 || format.Is(outputformat.Name))
	}
	if len(objects) == 0 {
		fmt.Fprintf(c.Out, "There are no controllers. Begin one with: %s init NAME --parent KIND.GROUP --child deployments\n", connection.Program)
		return nil
	}
	warnings := WarningsOf(ctx, c)
	for i, object := range objects {
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		live := Live(ctx, c, object)
		text := report(object, live, warnings, time.Now(), len(args) == 1)
		if _, err := io.WriteString(c.Out, text); err != nil {
			return err
		}
	}
	return nil
}

// Live returns how a controller is doing with its parents now, or nil if they are too many for one page, or the server does not say.
func Live(ctx context.Context, c *connection.Connection, object controllerobject.Object) *v1alpha1.ControllerParentList {
	client, err := subresource.New(c, object)
	if err != nil {
		return nil
	}
	page, err := client.ParentPage(ctx, v1alpha1.ControllerParentOptions{Limit: subresource.MostParents})
	if err != nil || page.Continue != "" || page.Hidden > 0 {
		return nil
	}
	return page
}

// encode prints the objects themselves: each alone, or all as a list.
func encode(out io.Writer, printer printers.ResourcePrinter, objects []controllerobject.Object, alone bool) error {
	list := make([]runtime.Object, 0, len(objects))
	for _, object := range objects {
		list = append(list, object.Runtime())
	}
	if alone {
		for _, object := range list {
			if err := printer.PrintObj(object, out); err != nil {
				return err
			}
		}
		return nil
	}
	all := &metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	if err := meta.SetList(all, list); err != nil {
		return fmt.Errorf("making a list: %w", err)
	}
	return printer.PrintObj(all, out)
}
