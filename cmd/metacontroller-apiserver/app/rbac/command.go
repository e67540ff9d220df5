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

package rbac

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/kubeconfig"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights/manifest"
)

// Explain adds to an error of a request to an API group what to look at next.
type Explain func(group string, err error) error

// options are the flags.
type options struct {
	filename      string
	connect       func() (*rest.Config, error)
	explain       Explain
	account       string
	serverAccount string
}

// NewCommand returns the subcommand rbac of the server, with a flag of its own for the kubeconfig file. It prints manifests to the
// command's standard output.
func NewCommand() *cobra.Command {
	var path string
	cmd := NewCommandOf("metacontroller-apiserver", func() (*rest.Config, error) { return kubeconfig.Read(path) }, func(_ string, err error) error { return err })
	cmd.Flags().StringVar(&path, "kubeconfig", "", "kubeconfig file for the cluster, with NAME; empty: the environment variable "+
		"KUBECONFIG, then ~/.kube/config, then the service account of the Pod")
	return cmd
}

// NewCommandOf returns the same as a command of another program, which connect gives the cluster to read from, and whose errors explain
// explains. They are called only if a controller is named.
func NewCommandOf(program string, connect func() (*rest.Config, error), explain Explain) *cobra.Command {
	o := options{connect: connect, explain: explain}
	cmd := &cobra.Command{
		Use:   "rbac (-f FILE | NAME)",
		Short: "Print the roles and bindings that the service account of a controller needs",
		Long: `Print the roles and bindings that the service account of a controller needs, as YAML for kubectl apply.

They hold the verbs that this server uses for the definition, and no others:
- a ClusterRole for parents and children;
- a Role in each namespace with credentials of hooks;
- a Role with which the server may act as the account.

With NAME the command reads the controller from the server, and looks at what the cluster serves. With a file it needs no
cluster.`,
		Example: fmt.Sprintf(`  # Before the controller is created
  %[1]s rbac -f controller.yaml | kubectl apply -f -

  # For a controller that exists, if need be with its kind before the name
  %[1]s rbac compositecontroller/hello | kubectl apply -f -`, program),
		Args:         cobra.MaximumNArgs(1),
		SilenceUsage: true,
		RunE:         o.run,
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.filename, "filename", "f", "", "file with manifests of controllers; - is the standard input")
	flags.StringVar(&o.account, "service-account", "", "service account as NAMESPACE/NAME; empty: that of spec.serviceAccountRef")
	flags.StringVar(&o.serverAccount, "server-account", "metacontroller/metacontroller-apiserver", "service account of the server as "+
		"NAMESPACE/NAME, which is let act as the controller's; empty: that is left out")
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	var list []controller
	var err error
	switch {
	case (o.filename == "") == (len(args) == 0):
		return fmt.Errorf("name a controller, or a file with -f (see %s --help)", cmd.CommandPath())
	case o.filename != "":
		list, err = fromFile(o.filename, cmd.InOrStdin())
	default:
		list, err = o.fromCluster(cmd.Context(), args[0])
	}
	if err != nil {
		return err
	}
	// Nothing is printed before all is known to be right: it may be applied as it comes.
	var b strings.Builder
	for i := range list {
		if err := o.print(&b, &list[i]); err != nil {
			return err
		}
	}
	_, err = io.WriteString(cmd.OutOrStdout(), b.String())
	return err
}

// print writes the manifests for one controller.
func (o *options) print(b *strings.Builder, c *controller) error {
	account, server := c.account, (*rights.Account)(nil)
	if o.account != "" {
		given, err := parseAccount(o.account)
		if err != nil {
			return fmt.Errorf("--service-account: %w", err)
		}
		account = &given
	}
	if account == nil {
		return fmt.Errorf("%s has no spec.serviceAccountRef: set it, or name a service account with --service-account", c)
	}
	if o.serverAccount != "" {
		given, err := parseAccount(o.serverAccount)
		if err != nil {
			return fmt.Errorf("--server-account: %w", err)
		}
		server = &given
	}
	fmt.Fprintf(b, "# What the service account %s needs as that of %s.\n", account, c)
	for _, note := range c.notes {
		fmt.Fprintf(b, "# %s\n", note)
	}
	if len(c.needs.Related) > 0 {
		b.WriteString("# The customize hook names further kinds while it runs: add list and watch of each, and of namespaces if a rule " +
			"selects\n# by their labels.\n")
	}
	if len(c.needs.Requester) > 0 {
		b.WriteString("# The cluster asks these of the authors of certificate requests and admission policies. Only certificates of nodes and\n" +
			"# policies with parameters take them, so that they are not given here:\n")
		for _, line := range rights.Lines(c.needs.Requester) {
			fmt.Fprintf(b, "# - %s\n", line)
		}
	}
	for _, object := range manifest.Objects(manifest.Controller{Name: c.roleName(), Account: *account, Needs: c.needs, Server: server}) {
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("writing the roles of %s: %w", c, err)
		}
		fmt.Fprintf(b, "---\n%s", text)
	}
	return nil
}

func parseAccount(text string) (rights.Account, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return rights.Account{}, fmt.Errorf("%q is not NAMESPACE/NAME", text)
	}
	return rights.Account{Namespace: namespace, Name: name}, nil
}
