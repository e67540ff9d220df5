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

package inline

import (
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Definition is what of a controller its inline hooks depend on.
type Definition struct {
	// Decorator is true for a DecoratorController: its hooks see object and attachments in place of parent and children.
	Decorator bool
	// Parents are the kinds of parents, and Children those of children or attachments.
	Parents, Children []v1alpha1.ResourceRule
	// Sync, Finalize and Customize are the hooks. Those that are not inline are not compiled.
	Sync, Finalize, Customize *v1alpha1.Hook
}

// DefinitionOf returns the definition of a controller object of either version of the API, an empty one of other objects.
func DefinitionOf(object any) Definition {
	switch o := object.(type) {
	case *metacontroller.CompositeController:
		return Composite(&o.Spec)
	case *metacontroller.DecoratorController:
		return Decorator(&o.Spec)
	case *v1alpha1.CompositeController:
		return Composite(&o.Spec)
	case *v1alpha1.DecoratorController:
		return Decorator(&o.Spec)
	}
	return Definition{}
}

// Composite returns the definition of a CompositeController.
func Composite(spec *v1alpha1.CompositeControllerSpec) Definition {
	d := Definition{Parents: []v1alpha1.ResourceRule{spec.ParentResource.ResourceRule}}
	for i := range spec.ChildResources {
		d.Children = append(d.Children, spec.ChildResources[i].ResourceRule)
	}
	if spec.Hooks != nil {
		d.Sync, d.Finalize, d.Customize = spec.Hooks.Sync, spec.Hooks.Finalize, spec.Hooks.Customize
	}
	return d
}

// Decorator returns the definition of a DecoratorController.
func Decorator(spec *v1alpha1.DecoratorControllerSpec) Definition {
	d := Definition{Decorator: true}
	for i := range spec.Resources {
		d.Parents = append(d.Parents, spec.Resources[i].ResourceRule)
	}
	for i := range spec.Attachments {
		d.Children = append(d.Children, spec.Attachments[i].ResourceRule)
	}
	if spec.Hooks != nil {
		d.Sync, d.Finalize, d.Customize = spec.Hooks.Sync, spec.Hooks.Finalize, spec.Hooks.Customize
	}
	return d
}

// Has reports whether a hook is inline.
func (d Definition) Has() bool {
	return slices.ContainsFunc([]*v1alpha1.Hook{d.Sync, d.Finalize, d.Customize}, func(h *v1alpha1.Hook) bool { return h != nil && h.Inline != nil })
}

// Resources returns the resources whose kinds the inline hooks are checked against.
func (d Definition) Resources() []v1alpha1.ResourceRule {
	resources := slices.Concat(d.Parents, d.Children)
	if d.Customize != nil && d.Customize.Inline != nil {
		resources = append(resources, relatedRules(d.Customize.Inline)...)
	}
	return resources
}

// kinds are the kinds that the expressions of a controller meet.
type kinds struct {
	Definition

	parent shape
	// children and related are by the names of fields, and nil for a kind that is not known.
	children, related map[string]*Kind
	// unknown are the resources of children that are not served.
	unknown []v1alpha1.ResourceRule
	// openRelated says that a webhook selects the related objects, of which nothing is known.
	openRelated bool
	warnings    []string
}

func (d Definition) kinds(schemas Schemas) *kinds {
	k := &kinds{Definition: d, parent: shapeOf(someObject)}
	for _, rule := range d.Parents {
		kind := k.lookUp(schemas, rule)
		if len(d.Parents) == 1 && kind != nil && kind.Schema != nil {
			k.parent = shapeOf(kind)
		}
	}
	k.children = k.byName(schemas, d.Children)
	for _, rule := range d.Children {
		if _, served := schemas.Resource(rule.APIVersion, rule.Resource); !served {
			k.unknown = append(k.unknown, rule)
		}
	}
	switch {
	case d.Customize == nil:
	case d.Customize.Inline != nil:
		k.related = k.byName(schemas, relatedRules(d.Customize.Inline))
	default:
		k.openRelated = true
	}
	return k
}

// lookUp returns the kind of a resource, and warns when nothing is known of it.
func (k *kinds) lookUp(schemas Schemas, rule v1alpha1.ResourceRule) *Kind {
	kind, served := schemas.Resource(rule.APIVersion, rule.Resource)
	name := rule.Resource + " of " + rule.APIVersion
	warning := ""
	switch {
	case !served:
		warning = name + " is not served: what inline hooks do with its objects is checked once it is"
	case kind.Schema == nil:
		warning = name + " has no schema: what inline hooks do with its objects is not checked"
	}
	if warning != "" && !slices.Contains(k.warnings, warning) {
		k.warnings = append(k.warnings, warning)
	}
	return kind
}

// byName finds kinds by the names of the fields under which expressions find their objects: the resource, or where several rules have
// the same resource, resource_group.
func (k *kinds) byName(schemas Schemas, rules []v1alpha1.ResourceRule) map[string]*Kind {
	versions := map[string]map[string]bool{}
	for _, rule := range rules {
		if versions[rule.Resource] == nil {
			versions[rule.Resource] = map[string]bool{}
		}
		versions[rule.Resource][rule.APIVersion] = true
	}
	found := map[string]*Kind{}
	for _, rule := range rules {
		name := rule.Resource
		if len(versions[rule.Resource]) > 1 {
			name += "_" + strings.NewReplacer(".", "_", "-", "_", "/", "_").Replace(rule.APIVersion)
		}
		found[name] = k.lookUp(schemas, rule)
	}
	return found
}

// relatedRules are the resources that an inline customize hook names.
func relatedRules(inline *v1alpha1.InlineHook) []v1alpha1.ResourceRule {
	c := &compiler{}
	var rules []v1alpha1.ResourceRule
	for i := range inline.RelatedResources {
		tree, _ := c.parse(inline.RelatedResources[i].Template.Raw, nil)
		apiVersion, ok1 := literalString(tree, apiVersionField)
		resource, ok2 := literalString(tree, "resource")
		if ok1 && ok2 {
			rules = append(rules, v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource})
		}
	}
	return rules
}
