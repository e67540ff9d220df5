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

package clusterwarnings

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// A definition is the view of a controller of either kind that this package needs.
type definition struct {
	kind, name string
	// spec is for comparisons.
	spec any
	// parents are parents or targets, children are children or attachments.
	parents, children []use
	hooks             []namedHook
	// finalizes says that there is a finalize hook.
	finalizes bool
	endpoints []v1alpha1.EndpointConfig
	// account says that a service account reads the Secrets and ConfigMaps of hooks, which the author may not be able to read.
	account bool
	// unchecked says that nobody has asked whether the author of an update may read them, because it changes nothing of what that depends on.
	unchecked bool
}

// A use is one place of a definition where a resource is named.
type use struct {
	rule     v1alpha1.ResourceRule
	path     *field.Path
	selector *metav1.LabelSelector
	// annotations narrows it down further; nil selects all.
	annotations *v1alpha1.AnnotationSelector
	// missing is what the controller does while the resource is not served.
	missing string
}

const (
	waits = "starts when it does"
	goes  = "goes without it until it does"
)

type namedHook struct {
	*v1alpha1.Webhook

	path *field.Path
}

func (u use) groupResource() schema.GroupResource {
	gv, err := schema.ParseGroupVersion(u.rule.APIVersion)
	if err != nil {
		gv.Group = u.rule.APIVersion
	}
	return schema.GroupResource{Group: gv.Group, Resource: u.rule.Resource}
}

// definitionOf returns the definition in a CompositeController or DecoratorController; false for anything else.
func definitionOf(object any) (definition, bool) {
	spec := field.NewPath("spec")
	var d definition
	switch o := object.(type) {
	case *metacontroller.CompositeController:
		parent := o.Spec.ParentResource
		d = definition{kind: v1alpha1.KindComposite, name: o.Name, spec: &o.Spec, endpoints: o.Spec.EndpointConfigs, account: o.Spec.ServiceAccountRef != nil}
		d.parents = []use{{parent.ResourceRule, spec.Child("parentResource"), parent.LabelSelector, nil, waits}}
		for i, rule := range o.Spec.ChildResources {
			d.children = append(d.children, use{rule.ResourceRule, spec.Child("childResources").Index(i), nil, nil, goes})
		}
		if hooks := o.Spec.Hooks; hooks != nil {
			d.addHooks(hooks.Sync, hooks.Finalize, hooks.Customize)
		}
	case *metacontroller.DecoratorController:
		d = definition{kind: v1alpha1.KindDecorator, name: o.Name, spec: &o.Spec, endpoints: o.Spec.EndpointConfigs, account: o.Spec.ServiceAccountRef != nil}
		missing := goes
		if len(o.Spec.Resources) == 1 {
			missing = waits
		}
		for i, rule := range o.Spec.Resources {
			d.parents = append(d.parents, use{rule.ResourceRule, spec.Child("resources").Index(i), rule.LabelSelector, rule.AnnotationSelector, missing})
		}
		for i, rule := range o.Spec.Attachments {
			d.children = append(d.children, use{rule.ResourceRule, spec.Child("attachments").Index(i), nil, nil, goes})
		}
		if hooks := o.Spec.Hooks; hooks != nil {
			d.addHooks(hooks.Sync, hooks.Finalize, hooks.Customize)
		}
	default:
		return d, false
	}
	return d, true
}

func (d *definition) addHooks(sync, finalize, customize *v1alpha1.Hook) {
	d.finalizes = finalize != nil
	path := field.NewPath("spec", "hooks")
	for _, hook := range []struct {
		*v1alpha1.Hook

		name string
	}{{sync, "sync"}, {finalize, "finalize"}, {customize, "customize"}} {
		if hook.Hook != nil && hook.Webhook != nil {
			d.hooks = append(d.hooks, namedHook{hook.Webhook, path.Child(hook.name, "webhook")})
		}
	}
}
