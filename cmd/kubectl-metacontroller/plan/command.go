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
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/lint"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/localhook"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/textdiff"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// Output are the flags that say how a plan is printed, and whether the API server is asked about each child.
type Output struct {
	// Format is markdown, json, yaml, or empty for a difference.
	Format string
	// Check has the API server check children by dry runs.
	Check bool
	color string
}

// Add adds the flags to those of a command.
func (o *Output) Add(flags *pflag.FlagSet) {
	outputformat.AddDocument(flags, &o.Format, Markdown)
	flags.StringVar(&o.color, "color", "auto", "color the difference: auto (on a terminal), always or never")
	flags.BoolVar(&o.Check, "check", false, "have the API server check each child that would be written, by a dry run")
}

// Report returns a report with the flags.
func (o *Output) Report(c *connection.Connection) (*Report, error) {
	if err := outputformat.CheckDocument(o.Format, Markdown); err != nil {
		return nil, err
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
	// hook is the address of the hooks of the candidate.
	hook string
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
rights to write it. Its hooks are called at the address of --hook; or, if those of the stored one are on the machine of the server, there.

The exit status is 0 if nothing would change, and 1 if something would, or waits for the deletion guard. It is greater if that could not be found
out, or if a sync would fail.
Parents that you may not get are left out, which is said on the error stream. -o markdown prints a table for a pull request.`,
		Example: `  # What would a change of the definition do to all parents?
  kubectl metacontroller plan -f controller.yaml --all

  # What would the next sync of one parent do?
  kubectl metacontroller plan cc/website shop/example`,
		Args:              cobra.RangeArgs(0, 2),
		RunE:              c.RunE(o.run),
		ValidArgsFunction: subresource.Complete(c),
	}
	o.flags.Add(cmd.Flags())
	o.output.Add(cmd.Flags())
	cmd.Flags().StringVar(&o.hook, "hook", "", "address of the hooks of the definition in the file, such as http://localhost:8080; their paths are kept")
	cmd.Flags().StringVarP(&o.filename, "filename", "f", "", "file or folder with a definition in place of the stored one; - for the standard input")
	return exitstatus.Compares(cmd)
}

// File shows what syncs would do with the definition in a file. The arguments are those of the command with -f.
func File(ctx context.Context, c *connection.Connection, flags subresource.Flags, output Output, filename string, args []string) error {
	o := options{flags: flags, output: output, filename: filename}
	return o.run(ctx, c, args)
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
		if o.hook != "" {
			return object, "", fmt.Errorf("--hook is about the definition in a file: name one with -f, or try a hook with the stored one by '%s try'", connection.Program)
		}
		if len(args) == 0 {
			return object, "", fmt.Errorf("name a controller, or a file with -f: %s plan cc/NAME", connection.Program)
		}
		if len(args) == 2 {
			parent = args[1]
		}
		object, err = c.Find(ctx, args[0])
		return object, parent, err
	}
	definition, err := lint.Controller(o.filename, c.In)
	if err != nil {
		return object, "", err
	}
	object, spec.Candidate = definition.Object, &runtime.RawExtension{Raw: definition.Encoded}
	if err := o.point(ctx, c, object, spec.Candidate); err != nil {
		return object, "", err
	}
	if len(args) == 0 {
		return object, "", nil
	}
	reference, err := controllerobject.Parse(args[0])
	switch {
	case len(args) == 1 && (err != nil || reference.Kind == ""):
		return object, args[0], nil //nolint:nilerr // One argument is the controller if it names a kind of controllers, and else the parent.
	case err != nil:
		return object, "", err
	case !reference.Is(object):
		return object, "", fmt.Errorf("%s holds %s, not %s: name what is in the file, or leave it out", o.filename, object.Argument(), args[0])
	case len(args) == 2:
		parent = args[1]
	}
	return object, parent, nil
}

// point points the hooks of the candidate at --hook, or at where those of the stored controller are on the machine of the server.
func (o *options) point(ctx context.Context, c *connection.Connection, object controllerobject.Object, body *runtime.RawExtension) error {
	address := o.hook
	if parsed, err := url.Parse(address); err != nil || address != "" && parsed.Host == "" {
		return fmt.Errorf("--hook: %q is no address: write one such as http://localhost:8080", address)
	} else if address != "" {
		address = parsed.Scheme + "://" + parsed.Host
	} else if stored, err := c.Find(ctx, object.Argument()); err == nil { // There may be none yet.
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored.Runtime())
		if err != nil {
			return fmt.Errorf("reading where the hooks are: %w", err)
		}
		address = localhook.AddressOf(content)
	}
	if address == "" {
		return nil
	}
	var content map[string]any
	err := json.Unmarshal(body.Raw, &content)
	before := runtime.DeepCopyJSON(content)
	if err == nil {
		_, err = localhook.PointAt(content, address)
	}
	if err == nil && reflect.DeepEqual(content, before) {
		return nil // There is no webhook, or it is there already.
	}
	if err == nil {
		body.Raw, err = json.Marshal(content)
	}
	if err != nil {
		return fmt.Errorf("pointing the hooks of %s at %s: %w", o.filename, address, err)
	}
	if o.hook == "" {
		fmt.Fprintf(c.ErrOut, "The hooks are called at %s, where the stored controller has them. --hook names another address.\n", address)
	}
	return nil
}
