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

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/composite"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/decorator"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/dependencies"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/supervisor"
)

// resourceReader says what the cluster serves, as *discovery.Discovery does.
type resourceReader interface {
	Resource(ctx context.Context, apiVersion, resource string) (discovery.Resource, error)
}

// builder implements supervisor.Builder for both kinds.
type builder struct {
	shared    *dependencies.Shared
	resources resourceReader
}

// Build implements supervisor.Builder.
func (b builder) Build(ctx context.Context, d definition.Definition) (supervisor.Instance, error) {
	if d.Kind == definition.KindDecorator {
		return decorator.New(ctx, b.shared, d)
	}
	return composite.New(ctx, b.shared, d)
}

// Fingerprint implements supervisor.Builder: what discovery says about every resource that the definition names.
func (b builder) Fingerprint(ctx context.Context, d definition.Definition) []string {
	rules := slices.Concat(d.Parents, d.Children)
	texts := make([]string, len(rules))
	for i, rule := range rules {
		r, err := b.resources.Resource(ctx, rule.APIVersion, rule.Resource)
		if _, missing := errors.AsType[*discovery.NotFoundError](err); missing {
			texts[i] = "missing"
		} else if err == nil {
			texts[i] = fmt.Sprintln(r.GroupVersionResource, r.Kind, r.Namespaced, r.HasStatus)
		}
	}
	return texts
}
