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
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// NewCommand returns the command status.
func NewCommand(c *connection.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Tell how a controller is doing, or all of them, and what to do next",
		Long: `Tell how a controller is doing, or all of them, and what to do next: whether it runs, its parents, its hooks, and the parents whose
last sync failed. It is read from the status of the controller objects, in which numbers are a few seconds late.`,
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
	now := time.Now()
	for i, object := range objects {
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		text := report(object, now, len(args) == 1)
		if _, err := io.WriteString(c.Out, text); err != nil {
			return err
		}
	}
	return nil
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
