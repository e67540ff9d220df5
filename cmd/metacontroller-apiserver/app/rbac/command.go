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
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/kubeconfig"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/scheme"
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
	kubeconfig.AddFlag(cmd.Flags(), &path, ", with NAME")
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
	account, err := rights.ParseAccount(o.account)
	if err != nil {
		return fmt.Errorf("--service-account: %w", err)
	}
	if account = cmp.Or(account, c.account); account == nil {
		return fmt.Errorf("%s has no spec.serviceAccountRef: set it, or name a service account with --service-account", c)
	}
	server, err := rights.ParseAccount(o.serverAccount)
	if err != nil {
		return fmt.Errorf("--server-account: %w", err)
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

// controller is what is needed of a controller object.
type controller struct {
	// kind is compositecontroller or decoratorcontroller.
	kind, name string
	// account is nil if the definition names none.
	account *rights.Account
	needs   rights.Needs
	// versions are the API versions of its kinds, each once.
	versions []string
	// notes are for the reader of the manifests.
	notes []string
}

// String returns kind/name.
func (c *controller) String() string { return c.kind + "/" + c.name }

func (c *controller) roleName() string { return "metacontroller-" + c.kind + "-" + c.name }

func controllerOf(o controllerobject.Object) controller {
	c := controller{kind: strings.ToLower(o.Kind()), name: o.Name(), account: rights.AccountOf(o.Account())}
	if o.Composite != nil {
		c.needs = rights.OfComposite(&o.Composite.Spec)
	} else {
		c.needs = rights.OfDecorator(&o.Decorator.Spec)
	}
	for _, rule := range append(o.Parents(), o.Children()...) {
		if !slices.Contains(c.versions, rule.APIVersion) {
			c.versions = append(c.versions, rule.APIVersion)
		}
	}
	return c
}

// fromFile reads the controllers in a file; - is the standard input. Objects of other groups may stand beside them.
func fromFile(name string, in io.Reader) ([]controller, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading controllers: %w", err)
		}
		defer file.Close() //nolint:errcheck // Nothing was written.
		in = file
	}
	codec := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDecoder(v1alpha1.SchemeGroupVersion)
	manifests, err := controllerobject.Manifests(in, yaml.YAMLToJSON)
	if err != nil {
		return nil, fmt.Errorf("reading controllers from %s: %w", name, err)
	}
	var list []controller
	for _, m := range manifests {
		object, err := decode(codec, m)
		if err != nil {
			return nil, fmt.Errorf("reading controllers from %s: %w", name, err)
		}
		if object != (controllerobject.Object{}) {
			list = append(list, controllerOf(object))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s holds no CompositeController and no DecoratorController of %s", name, v1alpha1.GroupName)
	}
	return list, nil
}

// decode reads a controller. It is empty for another object.
func decode(codec runtime.Decoder, m controllerobject.Manifest) (controllerobject.Object, error) {
	var fields map[string]json.RawMessage
	switch {
	case m.Err != nil:
		return controllerobject.Object{}, m.Err
	case !m.Ours():
		return controllerobject.Object{}, json.Unmarshal(m.JSON, &fields) // It must be an object.
	}
	object, _, err := codec.Decode(m.Text, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return controllerobject.Object{}, fmt.Errorf("%q is no kind of %s: see 'kubectl metacontroller lint'", m.Kind, m.APIVersion)
	}
	if err != nil {
		return controllerobject.Object{}, err
	}
	composite, _ := object.(*v1alpha1.CompositeController)
	decorator, _ := object.(*v1alpha1.DecoratorController)
	return controllerobject.Object{Composite: composite, Decorator: decorator}, nil
}

// fromCluster reads a controller, NAME or KIND/NAME, from the server, and takes off what the cluster does not serve.
func (o *options) fromCluster(ctx context.Context, argument string) ([]controller, error) {
	config, err := o.connect()
	if err != nil {
		return nil, err
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	found, err := controllerobject.Find(ctx, client, argument)
	if err != nil {
		return nil, o.explain(v1alpha1.GroupName, err)
	}
	c := controllerOf(found)
	if err := c.look(ctx, discovery.ToDiscoveryInterfaceWithContext(client.Discovery()), o.explain); err != nil {
		return nil, err
	}
	return []controller{c}, nil
}

// look asks the cluster what it serves of the controller's kinds. Rights on status subresources that are not there are taken off, and
// kinds that are not served are noted.
func (c *controller) look(ctx context.Context, client discovery.DiscoveryInterfaceWithContext, explain Explain) error {
	served := map[schema.GroupResource]bool{}
	for _, version := range c.versions {
		parsed, err := schema.ParseGroupVersion(version)
		if err != nil {
			return fmt.Errorf("reading the definition of %s: %w", c, err)
		}
		list, err := client.ServerResourcesForGroupVersionWithContext(ctx, version)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return explain(parsed.Group, fmt.Errorf("asking what the cluster serves in %s: %w", version, err))
		}
		for i := range list.APIResources {
			served[schema.GroupResource{Group: parsed.Group, Resource: list.APIResources[i].Name}] = true
		}
	}
	c.serve(served)
	return nil
}

// serve fits the rights to the resources and subresources that are served.
func (c *controller) serve(served map[schema.GroupResource]bool) {
	c.needs.Kinds = slices.DeleteFunc(slices.Clone(c.needs.Kinds), func(r rights.Right) bool {
		resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
		if !served[resource] {
			if note := fmt.Sprintf("The cluster does not serve %s at present.", resource); !slices.Contains(c.notes, note) && !rights.Guards(r) {
				c.notes = append(c.notes, note)
			}
			return false
		}
		status := schema.GroupResource{Group: r.Group, Resource: r.Resource + "/" + rights.SubresourceStatus}
		return r.Subresource == rights.SubresourceStatus && !served[status]
	})
}
