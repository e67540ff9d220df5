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
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
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
	// synced says that the condition Synced is to be kept in the objects, and stays that they are to stay without their parents.
	synced, stays bool
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
		d.parents = []use{{parent.ResourceRule, spec.Child("parentResource"), parent.LabelSelector, nil, waits, keepsSynced(parent.Conditions), false}}
		for i, rule := range o.Spec.ChildResources {
			d.children = append(d.children, use{rule.ResourceRule, spec.Child("childResources").Index(i), nil, nil, goes, false, rule.OnParentDeletion == v1alpha1.ParentDeletionRetain})
		}
	case *metacontroller.DecoratorController:
		d = definition{kind: v1alpha1.KindDecorator, name: o.Name, spec: &o.Spec, endpoints: o.Spec.EndpointConfigs, account: o.Spec.ServiceAccountRef != nil}
		missing := goes
		if len(o.Spec.Resources) == 1 {
			missing = waits
		}
		for i, rule := range o.Spec.Resources {
			d.parents = append(d.parents, use{rule.ResourceRule, spec.Child("resources").Index(i), rule.LabelSelector, rule.AnnotationSelector, missing, keepsSynced(rule.Conditions), false})
		}
		for i, rule := range o.Spec.Attachments {
			d.children = append(d.children, use{rule.ResourceRule, spec.Child("attachments").Index(i), nil, nil, goes, false, rule.OnParentDeletion == v1alpha1.ParentDeletionRetain})
		}
	default:
		return d, false
	}
	of := inline.DefinitionOf(object)
	d.addHooks(of.Sync, of.Finalize, of.Customize)
	return d, true
}

func keepsSynced(conditions []v1alpha1.ParentCondition) bool {
	return slices.Contains(conditions, v1alpha1.ParentConditionSynced)
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

// lookupsOfDeletion tell what is left when a definition is deleted: children, and what is not finalized. Of others nothing stays behind.
func (p *Plugin) lookupsOfDeletion(d *definition) lookups {
	if len(d.children) == 0 && !d.finalizes {
		return nil
	}
	var all lookups
	for _, parent := range d.parents {
		all = append(all, lookup{parent.path, func(ctx context.Context) ([]string, error) { return p.warnLeft(ctx, d, parent) }})
	}
	return all
}

const (
	// asMetadata asks for the metadata of objects alone.
	asMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	// pageSize and maxPages bound for how many objects it is looked whether their annotations are selected.
	pageSize, maxPages = 500, 4
)

// warnLeft looks whether there are parents of a kind.
func (p *Plugin) warnLeft(ctx context.Context, d *definition, parent use) ([]string, error) {
	some, err := p.exists(ctx, parent)
	if err != nil || !some {
		return nil, err
	}
	return []string{left(d, parent.groupResource())}, nil
}

// left says what stays behind of a definition.
func left(d *definition, parents schema.GroupResource) string {
	text := fmt.Sprintf("there are %s: ", parents)
	if len(d.children) == 0 {
		return text + "nobody finalizes them until you create a controller for them again"
	}
	what, cure := "children", fmt.Sprintf("delete the %s first", parents)
	if d.kind == v1alpha1.KindDecorator {
		// Its targets are seldom there for its sake.
		what, cure = "attachments", "have the hook return none first"
	}
	text += "their " + what + " stay, and nobody updates them"
	if d.finalizes {
		text += fmt.Sprintf(". Nobody finalizes the %s", parents)
	}
	return text + ". To delete the " + what + " as well, " + cure
}

// exists reports whether there is a parent of a kind that is selected. Among very many that only annotations tell apart it may miss one.
func (p *Plugin) exists(ctx context.Context, parent use) (bool, error) {
	selected, err := parent.annotated()
	if err != nil {
		return false, err
	}
	size := pageSize
	if selected.Empty() {
		size = 1
	}
	next := ""
	for range maxPages {
		list, err := p.list(ctx, parent, size, next)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("looking for %s: %w", parent.groupResource(), err)
		}
		if slices.ContainsFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return selected.Matches(labels.Set(o.Annotations)) }) {
			return true, nil
		}
		if next = list.Continue; next == "" {
			break
		}
	}
	return false, nil
}

// list returns the metadata of one page of the parents with the labels that are selected.
func (p *Plugin) list(ctx context.Context, parent use, limit int, next string) (*metav1.PartialObjectMetadataList, error) {
	version, err := schema.ParseGroupVersion(parent.rule.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("parsing API version %s: %w", parent.rule.APIVersion, err)
	}
	root := "/apis/" + version.String()
	if version.Group == "" {
		root = "/api/" + version.Version
	}
	request := p.client.Discovery().RESTClient().Get().AbsPath(root, parent.rule.Resource).Param("limit", strconv.Itoa(limit)).SetHeader("Accept", asMetadata)
	if parent.selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(parent.selector)
		if err != nil {
			return nil, fmt.Errorf("reading the selector: %w", err)
		}
		request.Param("labelSelector", selector.String())
	}
	if next != "" {
		request.Param("continue", next)
	}
	body, err := request.DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(body, list); err != nil {
		return nil, fmt.Errorf("decoding the list: %w", err)
	}
	return list, nil
}

// annotated selects the annotations of parents.
func (u use) annotated() (labels.Selector, error) {
	if u.annotations == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
		MatchLabels: u.annotations.MatchAnnotations, MatchExpressions: u.annotations.MatchExpressions,
	})
	if err != nil {
		return nil, fmt.Errorf("reading the annotation selector: %w", err)
	}
	return selector, nil
}
