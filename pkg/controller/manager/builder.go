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
	"fmt"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/composite"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/decorator"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/dependencies"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/supervisor"
)

// builder builds the instances of both kinds.
type builder struct {
	shared *dependencies.Shared
}

// Build implements supervisor.Builder.
func (b builder) Build(ctx context.Context, d supervisor.Definition) (supervisor.Instance, error) {
	if d.Kind() == supervisor.KindDecorator {
		c, err := decorator.New(ctx, b.shared, definition.OfDecorator(d.Decorator))
		return adapter{c}, err
	}
	c, err := composite.New(ctx, b.shared, definition.OfComposite(d.Composite))
	return adapter{c}, err
}

type adapter struct{ *reconciler.Controller }

func (a adapter) Redefine(d supervisor.Definition) error {
	if d.Decorator != nil {
		return a.Controller.Redefine(definition.OfDecorator(d.Decorator))
	}
	return a.Controller.Redefine(definition.OfComposite(d.Composite))
}

// Fingerprint implements supervisor.Builder: what discovery says about every resource that the definition names.
func (b builder) Fingerprint(ctx context.Context, d supervisor.Definition) string {
	var text strings.Builder
	for _, rule := range d.Rules() {
		r, err := b.shared.Cluster.Discovery.Resource(ctx, rule.APIVersion, rule.Resource)
		if err != nil {
			fmt.Fprintln(&text, "missing", rule.APIVersion, rule.Resource)
			continue
		}
		fmt.Fprintln(&text, r.GroupVersionResource, r.Kind, r.Namespaced, r.HasStatus)
	}
	return text.String()
}
