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

package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/kubeconfig"
)

// NewExportCommand returns the subcommand export. It prints the objects to the command's standard output, and notes to the other one.
func NewExportCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print all controllers and ControllerRevisions as YAML, for import",
		Long: `Print all controllers and ControllerRevisions as YAML, for import.

It reads them from this server, or from the CustomResourceDefinitions of Metacontroller. It leaves out what another server
sets anew, and the status, except for the resources whose objects may have the controller's finalizer. Revisions come
first, because a controller without them ends a rolling update by updating all children at once.`,
		Example:      "  metacontroller-apiserver export > controllers.yaml",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := client(path)
			if err != nil {
				return err
			}
			return export(cmd.Context(), config, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	kubeconfig.AddFlag(cmd.Flags(), &path, "")
	return cmd
}

// NewImportCommand returns the subcommand import. It prints what became of each object to the command's standard output.
func NewImportCommand() *cobra.Command {
	var path, filename string
	o := importing{}
	cmd := &cobra.Command{
		Use:   "import -f FILE",
		Short: "Create the controllers and ControllerRevisions in a file",
		Long: `Create the controllers and ControllerRevisions in a file: of export, or of kubectl get -o yaml.

It leaves existing objects alone, so that you may repeat it. It prints what became of each object. The exit status is not
zero if one is not as in the file. It leaves out a ControllerRevision whose parent is gone or was replaced by another
object of the name, because the cluster would collect it as garbage.`,
		Example: `  metacontroller-apiserver import -f controllers.yaml

  # Look first at what the controllers would do: kubectl metacontroller resume lets each of them go on
  metacontroller-apiserver import -f controllers.yaml --paused`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filename == "" {
				return errors.New("name the file with -f FILE, or pipe it and say -f -: it is what export, or kubectl get -o yaml, has printed")
			}
			objects, err := readFile(filename, cmd.InOrStdin())
			if err != nil {
				return err
			}
			config, err := client(path)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), config, objects, cmd.OutOrStdout())
		},
	}
	kubeconfig.AddFlag(cmd.Flags(), &path, "")
	flags := cmd.Flags()
	flags.StringVarP(&filename, "filename", "f", "", "file with the objects; - is the standard input")
	flags.BoolVar(&o.paused, "paused", false, "create controllers with spec.paused: true, so that they do nothing until they are resumed")
	flags.BoolVar(&o.replace, "replace", false, "change objects that exist into what the file says")
	flags.BoolVar(&o.dryRun, "dry-run", false, "have the server check everything, and change nothing")
	return cmd
}

func client(path string) (*rest.Config, error) {
	config, err := kubeconfig.Read(path)
	if err != nil {
		return nil, err
	}
	config.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}

// open returns a file, or the standard input for -.
func open(filename string, in io.Reader) (io.ReadCloser, error) {
	if filename == "-" {
		return io.NopCloser(in), nil
	}
	f, err := os.Open(filename)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s", filename)
	}
	return f, err
}

// export prints all objects to out, and what is to be known of them to notes.
func export(ctx context.Context, config *rest.Config, out, notes io.Writer) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	var counts []string
	for _, k := range kinds() {
		n := 0
		list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.Resource(k.resource()).List(ctx, o)
		})
		err := list.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			o, ok := item.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("the list has a %T", item)
			}
			if o.GetDeletionTimestamp() != nil {
				fmt.Fprintf(notes, "%s is left out: it is being deleted\n", describe(k, o))
				return nil
			}
			n++
			return write(out, o)
		})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("the cluster does not serve %s: neither a server nor CustomResourceDefinitions are there", k.resource().GroupResource())
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", k.plural, err)
		}
		counts = append(counts, fmt.Sprintf("%d %s", n, k.plural))
	}
	fmt.Fprintf(notes, "Exported %s.\n", strings.Join(counts, ", "))
	return nil
}

// write writes an object as a document of YAML.
func write(out io.Writer, o *unstructured.Unstructured) error {
	text, err := yaml.Marshal(clean(o).Object)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", o.GetName(), err)
	}
	_, err = fmt.Fprintf(out, "---\n%s", text)
	return err
}
