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

package tree

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// complete completes the kind or the resource of parents of controllers, and then the name of a parent.
func complete(c *connection.Connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		words, before := append(slices.Clone(args), prefix), ""
		if kind, name, both := strings.Cut(prefix, "/"); both && len(args) == 0 {
			words, before = []string{kind, name}, kind+"/"
		}
		if len(words) > 2 || strings.Contains(words[0], "/") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		controllers, err := c.List(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		if len(words) == 1 {
			return completeKind(c, controllers, prefix)
		}
		names, err := namesOf(cmd.Context(), c, controllers, words[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found := connection.Starting(names, words[1])
		for i := range found {
			found[i] = before + found[i]
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeKind completes a resource such as websites.example.com, or a kind with the slash before the name, where it begins with a capital letter.
func completeKind(c *connection.Connection, controllers []controllerobject.Object, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	mapper, err := c.Mapper()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	kinds, directive := prefix != strings.ToLower(prefix), cobra.ShellCompDirectiveNoFileComp
	if kinds {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	var found []string
	for _, object := range controllers {
		for _, rule := range object.Parents() {
			resource, err := rule.GroupVersionResource()
			if err != nil {
				continue
			}
			word := resource.GroupResource().String()
			if kinds {
				mapping, err := connection.MappingOf(mapper, resource)
				if err != nil {
					continue // It is not served.
				}
				word = mapping.GroupVersionKind.GroupKind().String() + "/"
			}
			found = append(found, word)
		}
	}
	slices.Sort(found)
	return connection.Starting(slices.Compact(found), prefix), directive
}

// namesOf returns the parents of a kind, as far as controllers name them.
func namesOf(ctx context.Context, c *connection.Connection, controllers []controllerobject.Object, kind string) ([]string, error) {
	mapper, err := c.Mapper()
	if err != nil {
		return nil, err
	}
	mapping, _, err := connection.Resolve(mapper, "tree", []string{kind, "any"})
	if err != nil {
		return nil, err
	}
	resource := mapping.Resource.GroupResource()
	var names []string
	for _, object := range controllers {
		if !object.HasParents(resource) {
			continue
		}
		parents, err := subresource.ParentNames(ctx, c, object, resource.String())
		if err != nil {
			return nil, err
		}
		names = append(names, parents...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
