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

package version

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"
	build "k8s.io/component-base/version"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// versions is what -o json prints.
type versions struct {
	// Plugin is the version of this program.
	Plugin version.Info `json:"pluginVersion"`
	// API is the newest version of the API group that the plugin and the server speak; empty if none is served.
	API string `json:"apiVersion,omitempty"`
	// Cluster is the version of the cluster's API server.
	Cluster *version.Info `json:"clusterVersion,omitempty"`
}

// NewCommand returns the command version.
func NewCommand(c *connection.Connection) *cobra.Command {
	var output string
	var client bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the plugin and of what the cluster serves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Plugin: build.Get()}
			var err error
			if !client {
				err = v.ask(cmd.Context(), c)
			}
			return errors.Join(v.print(c, output, client), err)
		},
	}
	outputformat.AddDocument(cmd.Flags(), &output)
	cmd.Flags().BoolVar(&client, "client", false, "print the version of the plugin only, and ask no cluster")
	return cmd
}

// ask asks the cluster.
func (v *versions) ask(ctx context.Context, c *connection.Connection) error {
	client, err := c.Controllers()
	if err != nil {
		return err
	}
	if v.Cluster, err = client.Discovery().ServerVersion(); err != nil {
		return connection.Explain(fmt.Errorf("asking the cluster for its version: %w", err))
	}
	if err := controllerobject.Served(ctx, client); err != nil {
		return connection.Explain(err)
	}
	v.API = controllerobject.Version()
	return nil
}

func (v *versions) print(c *connection.Connection, output string, clientOnly bool) error {
	if err := outputformat.CheckDocument(output); err != nil {
		return err
	}
	if output != "" {
		return outputformat.PrintDocument(c.Out, output, v)
	}
	fmt.Fprintf(c.Out, "Plugin: %s\n", v.Plugin.GitVersion)
	if clientOnly {
		return nil
	}
	if v.API != "" {
		fmt.Fprintf(c.Out, "API: %s, served\n", v.API)
	}
	if v.Cluster != nil {
		fmt.Fprintf(c.Out, "Cluster: %s\n", v.Cluster.GitVersion)
	}
	return nil
}
