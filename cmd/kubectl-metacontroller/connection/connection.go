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

package connection

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
)

// Program is how a person starts the plugin.
const Program = "kubectl metacontroller"

// Requests a second of one command, and in a burst: a command reads a few lists and ends.
const (
	qps   = 50
	burst = 100
)

// Connection makes clients from the flags of a command. Create it with New. Once the flags are read it is safe for concurrent use.
type Connection struct {
	genericiooptions.IOStreams

	flags *genericclioptions.ConfigFlags
}

// New returns a connection for commands that read and write these streams.
func New(streams genericiooptions.IOStreams) *Connection {
	warnings := rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true, Color: printers.AllowsColorOutput(streams.ErrOut)})
	flags := genericclioptions.NewConfigFlags(true).WithWarningPrinter(streams).WithWrapConfigFn(func(config *rest.Config) *rest.Config {
		config.QPS, config.Burst, config.WarningHandler = qps, burst, warnings
		return config
	})
	return &Connection{IOStreams: streams, flags: flags}
}

// AddFlags adds the flags of kubectl that say which cluster, which namespace and as whom.
func (c *Connection) AddFlags(flags *pflag.FlagSet) { c.flags.AddFlags(flags) }

// RunE is what cobra runs for a command that asks the cluster.
func (c *Connection) RunE(run func(ctx context.Context, c *Connection, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), c, args) }
}

// Config returns the configuration of clients.
func (c *Connection) Config() (*rest.Config, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w: name one with --kubeconfig, or see 'kubectl config get-contexts'", err)
	}
	return config, nil
}

// Controllers returns the generated client.
func (c *Connection) Controllers() (versioned.Interface, error) {
	return clientOf(c, versioned.NewForConfig)
}

// Objects returns a client for objects of any kind.
func (c *Connection) Objects() (dynamic.Interface, error) {
	return clientOf(c, dynamic.NewForConfig)
}

// clientOf makes a client from the flags.
func clientOf[C any](c *Connection, create func(*rest.Config) (C, error)) (client C, err error) {
	config, err := c.Config()
	if err != nil {
		return client, err
	}
	if client, err = create(config); err != nil {
		return client, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// Mapper tells resources by the names that people give them.
func (c *Connection) Mapper() (meta.RESTMapper, error) {
	mapper, err := c.flags.ToRESTMapper()
	if err != nil {
		return nil, Explain(fmt.Errorf("asking which kinds the cluster serves: %w", err))
	}
	return mapper, nil
}

// Namespace is that of --namespace, or that of the kubeconfig.
func (c *Connection) Namespace() (string, error) {
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the namespace of the kubeconfig: %w", err)
	}
	return namespace, nil
}

// Find reads the controller object that an argument names, such as cc/web.
func (c *Connection) Find(ctx context.Context, argument string) (controllerobject.Object, error) {
	client, err := c.Controllers()
	if err != nil {
		return controllerobject.Object{}, err
	}
	object, err := controllerobject.Find(ctx, client, argument)
	return object, Explain(err)
}

// List reads all controller objects.
func (c *Connection) List(ctx context.Context) ([]controllerobject.Object, error) {
	client, err := c.Controllers()
	if err != nil {
		return nil, err
	}
	list, err := controllerobject.List(ctx, client)
	return list, Explain(err)
}

// CompleteName completes the one argument of a command that names a controller.
func (c *Connection) CompleteName(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := c.List(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, object := range list {
		names = append(names, object.Name(), object.Argument())
	}
	return Starting(names, prefix), cobra.ShellCompDirectiveNoFileComp
}

// Starting returns the words that begin with a prefix, in the same array.
func Starting(words []string, prefix string) []cobra.Completion {
	return slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, prefix) })
}

// Explain adds to an error of a request to the API group what to look at next. Other errors, and nil, are returned as they are.
func Explain(err error) error { return ExplainOf(v1alpha1.GroupName, err) }

// ExplainOf is Explain for requests to any API group.
func ExplainOf(group string, err error) error {
	var network net.Error
	switch {
	case err == nil:
		return nil
	case apierrors.IsServiceUnavailable(err) && group != v1alpha1.GroupName:
		return fmt.Errorf("%w: see 'kubectl get apiservices' and 'kubectl get --raw /readyz?verbose'", err)
	case apierrors.IsServiceUnavailable(err):
		return fmt.Errorf("%w: the server of metacontroller.k8s.io is not available; "+
			"see 'kubectl describe apiservice v1alpha1.metacontroller.k8s.io'", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: see what you may do with 'kubectl auth can-i --list'", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the cluster does not know you; see 'kubectl auth whoami'", err)
	case errors.Is(err, context.Canceled):
		return err // It says nothing of the cluster, though it comes as an error of the network.
	case errors.As(err, &network):
		return fmt.Errorf("%w: the cluster cannot be reached; see 'kubectl cluster-info' and 'kubectl config get-contexts'", err)
	}
	return err
}
