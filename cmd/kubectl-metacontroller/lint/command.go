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

package lint

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// options are the flags.
type options struct {
	filenames []string
	recursive bool
	output    string
}

// NewCommand returns the command lint.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "lint [FILE...]",
		Short: "Print what the server would say of manifests, without a server",
		Long: `Print what the server would say of manifests, without a server: what it would refuse, and what it would warn of. The manifests are those of
files, of folders and the folders in them, or without arguments of the working directory. A CustomResourceDefinition among them is
compared with the controllers of its objects. Inline hooks are compiled against the kinds of Kubernetes and of these CustomResourceDefinitions; a
warning says which kinds are missing. Objects of other API groups are left out, and so are warnings that need to know the cluster.
The exit status is 1 if something would be refused.`,
		Example: `  # All manifests of a folder and its folders
  kubectl metacontroller lint website

  # A file, and the manifests of a folder without those of its folders
  kubectl metacontroller lint -f controller.yaml -f config/

  # What another program writes
  kustomize build config | kubectl metacontroller lint -f -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && len(o.filenames) == 0 {
				args = []string{"."}
			}
			return o.run(cmd, streams, args)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&o.filenames, "filename", "f", nil, "files and folders with manifests as YAML or JSON; - is the standard input")
	flags.BoolVarP(&o.recursive, "recursive", "R", false, "look into folders of folders, too")
	outputformat.AddDocument(flags, &o.output)
	return cmd
}

func (o *options) run(cmd *cobra.Command, streams genericiooptions.IOStreams, args []string) error {
	if err := outputformat.CheckDocument(o.output); err != nil {
		return err
	}
	sources, err := open(o.filenames, o.recursive, streams.In)
	if err != nil {
		return err
	}
	more, err := open(args, true, streams.In)
	if err != nil {
		return err
	}
	sources = append(sources, more...)
	linter := newLinter()
	findings := []finding{}
	looked := 0
	for _, s := range sources {
		found, objects := linter.lint(cmd.Context(), s)
		findings = append(findings, found...)
		looked += objects
	}
	findings = append(findings, linter.definitionFindings()...)
	findings = append(findings, linter.compile()...)
	locate(sources, findings)
	if err := write(streams.Out, o.output, findings); err != nil {
		return err
	}
	return verdict(streams.ErrOut, o.output, findings, looked)
}

func write(out io.Writer, format string, findings []finding) error {
	if format != "" {
		return outputformat.PrintDocument(out, format, findings)
	}
	for _, f := range findings {
		if _, err := fmt.Fprintln(out, f); err != nil {
			return err
		}
	}
	return nil
}

// verdict says how it went, and is an error if something would be refused.
func verdict(out io.Writer, format string, findings []finding, looked int) error {
	refused, warned := 0, 0
	for _, f := range findings {
		if f.Severity == severityError {
			refused++
		} else {
			warned++
		}
	}
	objects := outputformat.Count(looked, "object", "objects")
	switch {
	case refused > 0:
		return fmt.Errorf("the server would refuse this: %s, %s in %s", outputformat.Count(refused, "error", "errors"), outputformat.Count(warned, "warning", "warnings"), objects)
	case looked == 0:
		return fmt.Errorf("there is no object of %s to look at: name other files with -f, or folders of folders with -R", v1alpha1.GroupName)
	case format == "":
		fmt.Fprintf(out, "The server would accept this: %s in %s.\n", outputformat.Count(warned, "warning", "warnings"), objects)
	}
	return nil
}
