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

package outputformat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/scheme"
)

// Formats that commands print themselves.
const (
	// Wide is a table with all columns.
	Wide = "wide"
	// Name is a line for each object, in the form in which kubectl takes its name.
	Name = "name"
)

// Flags say in which format a command prints. Create them with ForObjects or ForList.
type Flags struct {
	print *genericclioptions.PrintFlags
	// own are the formats that the command prints itself.
	own []string
}

// ForObjects adds the flags to a command that prints objects which have names.
func ForObjects(cmd *cobra.Command) *Flags {
	return add(cmd, genericclioptions.NewPrintFlags(""), nil)
}

// ForList adds the flags to a command that prints a list whose items are no objects: kubectl has no names of these. The command prints the
// formats own itself.
func ForList(cmd *cobra.Command, own ...string) *Flags {
	flags := genericclioptions.NewPrintFlags("")
	flags.NamePrintFlags = nil
	return add(cmd, flags, own)
}

func add(cmd *cobra.Command, flags *genericclioptions.PrintFlags, own []string) *Flags {
	// Without it, a template that was given alone would be left out if --output is there and empty.
	flags.OutputFlagSpecified = func() bool { return *flags.OutputFormat != "" }
	f := &Flags{print: flags.WithTypeSetter(scheme.Scheme), own: own}
	flags.AddFlags(cmd)
	cmd.Flag("output").Usage = "output format: one of " + f.known()
	return f
}

// known are all formats.
func (f *Flags) known() string {
	return strings.Join(slices.Concat(f.own, f.print.AllowedFormats()), ", ")
}

// Is reports whether a format is asked for.
func (f *Flags) Is(format string) bool { return strings.EqualFold(*f.print.OutputFormat, format) }

// Printer returns what prints the format that is asked for. It is nil if the command prints itself: if none is asked for, or one of its own.
func (f *Flags) Printer() (printers.ResourcePrinter, error) {
	if f.Is("") && *f.print.TemplatePrinterFlags.TemplateArgument == "" || slices.ContainsFunc(f.own, f.Is) {
		return nil, nil
	}
	printer, err := f.print.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("--output: %q is not known: use one of %s", *f.print.OutputFormat, f.known())
	}
	if err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	return printer, nil
}
