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

package scaffold

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// defaultPort is where the hook listens on the author's machine.
const defaultPort = 8080

// options are the flags.
type options struct {
	parent, plural, language, directory string
	children, fields                    []string
	decorator, inline                   bool
	port                                int
}

// NewCommand returns the command init.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "init NAME --parent KIND.GROUP --child RESOURCE,...",
		Short: "Write a folder with a controller that works, to begin with",
		Long: `Write a folder with a controller that works, to begin with: the CustomResourceDefinition, the controller, and its hook with an endpoint
for readiness probes. A test replays a recorded request. There are a container file, manifests, and a README that says how to go on. The
folder is complete: nothing is downloaded to run the hook.

With --inline the hooks are templates in the controller, which the server evaluates: there is nothing but YAML, and a recorded request for the
commands lint and replay.

With --decorator the parent is a kind that exists, whose objects get the children when they have the annotation NAME=enabled.`,
		Example: `  # A kind Website, for each of which there are a Deployment and a Service
  kubectl metacontroller init website --parent Website.example.com --child deployments,services --field html:string

  # The same without a program: with inline hooks
  kubectl metacontroller init website --inline --parent Website.example.com --child deployments,services --field html:string

  # A PodDisruptionBudget for Deployments that ask for it, with a hook in Go
  kubectl metacontroller init budget --decorator --parent Deployment.apps --child poddisruptionbudgets --lang go`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.inline && (cmd.Flags().Changed("lang") || cmd.Flags().Changed("port")) {
				return errors.New("inline hooks have no language and no port: leave out --lang and --port, or --inline")
			}
			return o.run(streams, args[0])
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.parent, "parent", "", "kind of the parents, as KIND.GROUP or KIND.VERSION.GROUP; of the core group, as KIND.VERSION")
	flags.StringVar(&o.plural, "plural", "", "plural of the parents' kind in lower case; empty: it is made up as in English")
	flags.StringSliceVar(&o.children, "child", nil, "resources of the children, such as deployments,services; others than those that init knows "+
		"as RESOURCE.VERSION.GROUP/KIND")
	flags.StringSliceVar(&o.fields, "field", nil, "fields of the parents' spec, as NAME:TYPE,...: TYPE is "+strings.Join(slices.Sorted(maps.Keys(examples())), ", "))
	flags.StringVar(&o.language, "lang", "python", "language of the hook: "+strings.Join(slices.Sorted(maps.Keys(languages())), ", "))
	flags.BoolVar(&o.inline, "inline", false, "write the hooks into the controller, as templates with expressions in CEL")
	flags.BoolVar(&o.decorator, "decorator", false, "add children to objects of a kind that exists")
	flags.StringVar(&o.directory, "directory", "", "folder to write; empty: NAME")
	flags.IntVar(&o.port, "port", defaultPort, "port of the hook on this machine, in manifests/local")
	return cmd
}

func (o *options) run(streams genericiooptions.IOStreams, name string) error {
	p, err := o.project(name)
	if err != nil {
		return err
	}
	files, err := p.files()
	if err != nil {
		return err
	}
	folder := cmp.Or(o.directory, name)
	if err := write(folder, files); err != nil {
		return err
	}
	p.Folder = folder
	text := "templates/next.txt"
	if o.inline {
		text = "templates/inline/next.txt"
	}
	next, err := p.render(text)
	if err != nil {
		return err
	}
	_, err = streams.Out.Write(next)
	return err
}

// project checks the flags.
func (o *options) project(name string) (*project, error) {
	if o.parent == "" || len(o.children) == 0 {
		return nil, errors.New("name the kinds: kubectl metacontroller init NAME --parent KIND.GROUP --child deployments,services")
	}
	if o.port < 1 || o.port > 65535 {
		return nil, fmt.Errorf("--port: %d is no port: use one from 1 to 65535", o.port)
	}
	l, ok := languages()[o.language]
	if !ok {
		return nil, fmt.Errorf("--lang: there is no %q: use %s", o.language, strings.Join(slices.Sorted(maps.Keys(languages())), ", "))
	}
	if o.inline {
		l = inlineLanguage()
	}
	parent, err := parentOf(o.parent, o.plural, o.decorator)
	if err != nil {
		return nil, fmt.Errorf("--parent: %w", err)
	}
	p := &project{Name: name, Parent: parent, Decorator: o.decorator, Port: o.port, Language: l, Folder: name}
	if err := checkName(name); err != nil {
		return nil, err
	}
	for _, argument := range o.children {
		c, err := childOf(argument)
		if err != nil {
			return nil, fmt.Errorf("--child: %w", err)
		}
		if c.Resource == parent.Resource && c.Group == parent.Group {
			return nil, fmt.Errorf("--child: %s is the kind of the parents: a controller whose children are parents again would not end", argument)
		}
		if slices.ContainsFunc(p.Children, func(other child) bool { return other.Kind == c.Kind }) {
			return nil, fmt.Errorf("--child: %s is there twice", argument)
		}
		p.Children = append(p.Children, c)
	}
	for _, argument := range o.fields {
		f, err := fieldOf(argument)
		if err == nil && o.decorator {
			err = errors.New("the kind of the parents exists: it has the fields that it has")
		}
		if err != nil {
			return nil, fmt.Errorf("--field: %w", err)
		}
		p.Fields = append(p.Fields, f)
	}
	p.complete()
	return p, nil
}

// write writes a new folder. A file that exists is an error, and nothing is written then.
func write(folder string, files map[string][]byte) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking at the folder to write: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("the folder %s is not empty: name another one with --directory", folder)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // source code, for everyone
			return fmt.Errorf("making a folder: %w", err)
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil { //nolint:gosec // as above
			return fmt.Errorf("writing a file: %w", err)
		}
	}
	return nil
}
