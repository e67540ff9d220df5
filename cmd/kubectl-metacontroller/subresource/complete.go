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

package subresource

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// Complete completes the arguments of a command that names a controller, and then one of its parents.
func Complete(c *connection.Connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return c.CompleteName(cmd, args, prefix)
		}
		object, err := c.Find(cmd.Context(), args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		parents, err := ParentNames(cmd.Context(), c, object, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return connection.Starting(parents, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// ParentNames returns the names of a controller's parents, behind their namespaces, as far as one page has them. Resource selects those of one
// resource, such as websites.example.com; all if it is empty.
func ParentNames(ctx context.Context, c *connection.Connection, object controllerobject.Object, resource string) ([]string, error) {
	client, err := New(c, object)
	if err != nil {
		return nil, err
	}
	list, err := client.ParentPage(ctx, v1alpha1.ControllerParentOptions{Resource: resource, Limit: MostParents})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].FullName()
	}
	return names, nil
}
