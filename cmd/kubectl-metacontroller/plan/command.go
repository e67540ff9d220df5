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

package plan

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/textdiff"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// Output are the flags that say how a plan is printed, and whether the API server is asked about each child.
type Output struct {
	// Format is json, yaml, or empty for a difference.
	Format string
	// Check has the API server check children by dry runs.
	Check bool
	color string
}

// Add adds the flags to those of a command.
func (o *Output) Add(flags *pflag.FlagSet) {
	flags.StringVarP(&o.Format, "output", "o", "", "output format: json or yaml")
	flags.StringVar(&o.color, "color", "auto", "color the difference: auto (on a terminal), always or never")
	flags.BoolVar(&o.Check, "check", false, "have the API server check each child that would be written, by a dry run")
}

// Report returns a report with the flags.
func (o *Output) Report(c *connection.Connection) (*Report, error) {
	if o.Format != "" && o.Format != formatJSON && o.Format != formatYAML {
		return nil, fmt.Errorf("--output: %q is not known: use json or yaml", o.Format)
	}
	color, err := textdiff.WantsColor(o.color, c.Out)
	if err != nil {
		return nil, err
	}
	return &Report{Format: o.Format, printer: textdiff.Printer{Out: c.Out, Color: color}, errOut: c.ErrOut}, nil
}

// options are the flags.
type options struct {
	flags    subresource.Flags
	output   Output
	filename string
}

// NewCommand returns the command plan.
func NewCommand(c *connection.Connection) *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "plan (CONTROLLER | -f FILE) [NAMESPACE/PARENT]",
		Short: "Show what syncs would do now, without doing it",
		Long: `Show what syncs of a controller would do now, without doing it, as kubectl diff shows what an apply would do. The server works it out: it
calls the hooks and writes nothing. The parents are one, those of the namespace, or with --all those of all namespaces.

With -f, the definition in the file is taken in place of the stored one. It has to pass a dry run of its write, so that it takes the
rights to write it.

The exit status is 0 if nothing would change, 1 if something would, or waits for the deletion guard, and greater if that could not be found out, or if a sync would fail.
Parents that you may not get are left out, which is said on the error stream.`,
		Example: `  # What would a change of the definition do to all parents?
  kubectl metacontroller plan -f controller.yaml --all

  # What would the next sync of one parent do?
  kubectl metacontroller plan cc/website shop/example`,
		Args: cobra.RangeArgs(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), c, args)
		},
		ValidArgsFunction: c.CompleteName,
	}
	o.flags.Add(cmd.Flags())
	o.output.Add(cmd.Flags())
	cmd.Flags().StringVarP(&o.filename, "filename", "f", "", "file with a definition in place of the stored one; - for the standard input")
	return exitstatus.Compares(cmd)
}

func (o *options) run(ctx context.Context, c *connection.Connection, args []string) error {
	report, err := o.output.Report(c)
	if err != nil {
		return err
	}
	spec := v1alpha1.ControllerPlanSpec{DryRun: o.output.Check}
	object, parent, err := o.arguments(ctx, c, args, &spec)
	if err != nil {
		return err
	}
	selected, err := o.flags.Of(ctx, c, object, parent)
	if err != nil {
		return err
	}
	spec.Parents = &selected.ParentSelection
	client, err := subresource.New(c, object)
	if err != nil {
		return err
	}
	if err := client.EachPlan(ctx, spec, report.Part); err != nil {
		return err
	}
	return report.End(object, selected)
}

// arguments reads which controller and which parent are meant, and the candidate.
func (o *options) arguments(
	ctx context.Context, c *connection.Connection, args []string, spec *v1alpha1.ControllerPlanSpec,
) (object controllerobject.Object, parent string, err error) {
	if last := len(args) - 1; last == 1 || last == 0 && o.filename != "" {
		if err := subresource.Named(args[last]); err != nil {
			return object, "", err
		}
	}
	if o.filename == "" {
		if len(args) == 0 {
			return object, "", fmt.Errorf("name a controller, or a file with -f: %s plan cc/NAME", connection.Program)
		}
		if len(args) == 2 {
			parent = args[1]
		}
		object, err = c.Find(ctx, args[0])
		return object, parent, err
	}
	object, spec.Candidate, err = candidate(o.filename, c.In)
	if err != nil {
		return object, "", err
	}
	named := len(args) == 2
	if len(args) == 1 {
		// One argument is the controller if it names a kind of controllers, and else the parent.
		reference, err := controllerobject.Parse(args[0])
		named = err == nil && reference.Kind != ""
	}
	if named {
		reference, err := controllerobject.Parse(args[0])
		if err != nil {
			return object, "", err
		}
		if !reference.Is(object) {
			return object, "", fmt.Errorf("%s holds %s, not %s: name what is in the file, or leave it out", o.filename, object.Argument(), args[0])
		}
		args = args[1:]
	}
	if len(args) == 1 {
		parent = args[0]
	}
	return object, parent, nil
}
