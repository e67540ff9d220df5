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
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// served knows which resources the cluster serves. It asks for each version once, and is safe for concurrent use.
type served struct {
	client discovery.DiscoveryInterfaceWithContext

	mu       sync.Mutex
	versions map[schema.GroupVersion]*version
	all      version
}

// A version is the response to a question that is asked once.
type version struct {
	once      sync.Once
	resources map[string]metav1.APIResource
	lists     []*metav1.APIResourceList
	err       error
}

// lookupsOfKinds are those of the resources that a definition names.
func (p *Plugin) lookupsOfKinds(d *definition) lookups {
	s := &served{client: p.client.Discovery(), versions: map[schema.GroupVersion]*version{}}
	var all lookups
	for _, parent := range d.parents {
		all = append(all, lookup{parent.path, func(ctx context.Context) ([]string, error) {
			return s.warnParent(ctx, parent, d.kind == v1alpha1.KindComposite)
		}})
	}
	for _, child := range d.children {
		all = append(all, lookup{child.path, func(ctx context.Context) ([]string, error) {
			texts, err := s.warnChild(ctx, child, d.parents)
			if d.kind == v1alpha1.KindComposite {
				texts = append(texts, warnMade(d.parents, child)...)
			}
			return texts, err
		}})
	}
	return all
}

func (s *served) warnParent(ctx context.Context, parent use, composite bool) ([]string, error) {
	_, resources, texts, err := s.find(ctx, parent)
	if err != nil || len(texts) > 0 || !composite && !parent.synced {
		return texts, err
	}
	_, ok := resources[parent.rule.Resource+"/status"]
	if !ok && composite {
		texts = append(texts, parent.rule.Resource+" have no status subresource; the status that hooks return is not written")
	}
	if !ok && parent.synced {
		texts = append(texts, parent.rule.Resource+" have no status subresource; the condition Synced is not kept")
	}
	if !ok || !parent.synced {
		return texts, nil
	}
	return s.warnConditions(ctx, parent)
}

// warnConditions looks whether a CustomResourceDefinition leaves a place for conditions in the status of its objects.
func (s *served) warnConditions(ctx context.Context, parent use) ([]string, error) {
	gv, err := schema.ParseGroupVersion(parent.rule.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("parsing API version %s: %w", parent.rule.APIVersion, err)
	}
	_, version, err := s.definition(ctx, gv, parent.rule.Resource)
	if err != nil || version == nil || version.Schema == nil {
		return nil, err
	}
	status, left := property(version.Schema.OpenAPIV3Schema, "status")
	conditions, leftOfStatus := property(status, "conditions")
	if left || leftOfStatus {
		return nil, nil
	}
	lost := "status.conditions"
	if conditions != nil {
		var item *apiextensionsv1.JSONSchemaProps
		if conditions.Items != nil {
			item = conditions.Items.Schema
		}
		var names []string
		for _, name := range []string{"type", "status", "reason", "message", "observedGeneration", "lastTransitionTime"} {
			if field, left := property(item, name); field == nil && !left {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			return nil, nil
		}
		lost = strings.Join(names, ", ") + " in status.conditions"
	}
	return []string{fmt.Sprintf("the schema of %s does not declare %s, which the API server drops from the condition Synced", parent.rule.Resource, lost)}, nil
}

// property returns the schema of a property, nil if none is declared. Left says that it is left as it is though it is not declared.
func property(of *apiextensionsv1.JSONSchemaProps, name string) (found *apiextensionsv1.JSONSchemaProps, left bool) {
	if of == nil {
		return nil, false
	}
	if p, ok := of.Properties[name]; ok {
		return &p, false
	}
	return nil, of.XPreserveUnknownFields != nil && *of.XPreserveUnknownFields || of.AdditionalProperties != nil
}

// namespaces are parents that are namespaces.
var namespaces = v1alpha1.ResourceRule{APIVersion: "v1", Resource: "namespaces"} //nolint:gochecknoglobals // It does not change.

func (s *served) warnChild(ctx context.Context, child use, parents []use) ([]string, error) {
	resource, _, texts, err := s.find(ctx, child)
	if err != nil || len(texts) > 0 {
		return texts, err
	}
	if resource.Namespaced {
		if child.stays && slices.ContainsFunc(parents, func(parent use) bool { return parent.rule == namespaces }) {
			texts = append(texts, fmt.Sprintf("%s in a namespace go with it when it is deleted, although onParentDeletion is Retain: "+
				"only those of a namespace that are in another one stay", child.rule.Resource))
		}
		return texts, nil
	}
	for _, parent := range parents {
		above, _, texts, err := s.find(ctx, parent)
		if err == nil && len(texts) == 0 && above.Namespaced {
			return []string{fmt.Sprintf("%s are cluster-scoped and %s are namespaced, whose children must be in their namespace: "+
				"responses with such children are rejected", child.rule.Resource, parent.rule.Resource)}, nil
		}
	}
	return nil, nil
}

// find returns the resource of a use, with all resources of its version by name; or a warning, if it is not served.
func (s *served) find(ctx context.Context, u use) (metav1.APIResource, map[string]metav1.APIResource, []string, error) {
	gv, err := schema.ParseGroupVersion(u.rule.APIVersion)
	if err != nil {
		return metav1.APIResource{}, nil, nil, fmt.Errorf("parsing API version %s: %w", u.rule.APIVersion, err)
	}
	resources, err := s.in(ctx, gv)
	if err != nil {
		return metav1.APIResource{}, nil, nil, err
	}
	if found, ok := resources[u.rule.Resource]; ok {
		return found, resources, nil, nil
	}
	declared, err := s.declared(ctx, gv, u.rule.Resource)
	if err != nil {
		return metav1.APIResource{}, nil, nil, err
	}
	if found, ok := declared[u.rule.Resource]; ok {
		return found, declared, nil, nil
	}
	text := fmt.Sprintf("the cluster does not serve %s in %s; the controller %s", u.rule.Resource, gv, u.missing)
	if near := s.nearest(ctx, gv, u.rule.Resource, slices.Collect(maps.Values(resources))); near != "" {
		text += "; did you mean " + near + "?"
	}
	return metav1.APIResource{}, nil, []string{text}, nil
}

func (s *served) in(ctx context.Context, gv schema.GroupVersion) (map[string]metav1.APIResource, error) {
	s.mu.Lock()
	v := s.versions[gv]
	if v == nil {
		v = &version{}
		s.versions[gv] = v
	}
	s.mu.Unlock()
	v.once.Do(func() {
		v.resources = map[string]metav1.APIResource{}
		// A panic is the response to all who ask, not only to the first one.
		v.err = recovery.Call(ctx, "discovering what the cluster serves", func() error {
			list, err := s.client.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return fmt.Errorf("discovering %s: %w", gv, err)
			default:
				for i := range list.APIResources {
					v.resources[list.APIResources[i].Name] = list.APIResources[i]
				}
			}
			return nil
		})
	})
	return v.resources, v.err
}

// everything returns all resources that the cluster serves, as far as it says.
func (s *served) everything(ctx context.Context) []*metav1.APIResourceList {
	s.all.once.Do(func() {
		// Groups whose server is down are an error beside the others.
		_, s.all.lists, s.all.err = s.client.ServerGroupsAndResourcesWithContext(ctx)
	})
	return s.all.lists
}

// nearest returns the name that an author may have meant: one of the same version that is written alike, or the same one in another
// version or group; empty if there is none.
func (s *served) nearest(ctx context.Context, gv schema.GroupVersion, resource string, same []metav1.APIResource) string {
	if near := alike(resource, same); near != "" {
		return near
	}
	near, least := "", 0
	for _, list := range s.everything(ctx) {
		other, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || other == gv {
			continue
		}
		found := named(resource, list.APIResources)
		if found == "" {
			continue
		}
		// Another version of the group comes first, then the group that is written most alike.
		place, far := found+" in "+list.GroupVersion, inline.Distance(other.Group, gv.Group)
		if near == "" || far < least || far == least && place < near {
			near, least = place, far
		}
	}
	return near
}

// named returns the resource with that name, kind, singular or short name; empty if there is none.
func named(name string, resources []metav1.APIResource) string {
	lower := strings.ToLower(strings.TrimSpace(name))
	for i := range resources {
		r := &resources[i]
		if !strings.Contains(r.Name, "/") && (r.Name == lower || r.SingularName == lower || strings.EqualFold(r.Kind, lower) || slices.Contains(r.ShortNames, lower)) {
			return r.Name
		}
	}
	return ""
}

// alike returns the resource with that name, kind, singular or short name, or the one that is written most alike; empty if none is.
func alike(name string, resources []metav1.APIResource) string {
	if found := named(name, resources); found != "" {
		return found
	}
	best, least := "", max(1, len(name)/4)
	for i := range resources {
		candidate := resources[i].Name
		if d := inline.Distance(candidate, strings.ToLower(name)); d < least || d == least && (best == "" || candidate < best) {
			best, least = candidate, d
		}
	}
	return best
}

// overlap reports whether an object may match both selectors. Nil selects everything. Those that cannot be read match nothing.
func overlap(a, b *metav1.LabelSelector) bool {
	first, ok := requirements(a)
	if !ok {
		return false
	}
	second, ok := requirements(b)
	if !ok {
		return false
	}
	for _, x := range first {
		if slices.ContainsFunc(second, func(y labels.Requirement) bool { return excludes(x, y) || excludes(y, x) }) {
			return false
		}
	}
	return true
}

func requirements(s *metav1.LabelSelector) (labels.Requirements, bool) {
	if s == nil {
		return nil, true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, false
	}
	list, selectable := selector.Requirements()
	return list, selectable
}

// excludes reports whether no value of their key satisfies both requirements; y is what x is compared with, not the reverse.
func excludes(x, y labels.Requirement) bool {
	if x.Key() != y.Key() {
		return false
	}
	switch x.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
	default:
		return x.Operator() == selection.Exists && y.Operator() == selection.DoesNotExist
	}
	values := sets.New(x.Values().UnsortedList()...)
	switch y.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return !values.HasAny(y.Values().UnsortedList()...)
	case selection.NotIn, selection.NotEquals:
		return values.Difference(sets.New(y.Values().UnsortedList()...)).Len() == 0
	case selection.DoesNotExist:
		return true
	default:
		return false
	}
}

// declared returns the resources that a CustomResourceDefinition is about to add to a version: who applies a definition and a
// controller together is heard before discovery names the new kind. Nothing if there is no such definition, its names are taken, or it may
// not be read.
func (s *served) declared(ctx context.Context, gv schema.GroupVersion, resource string) (map[string]metav1.APIResource, error) {
	crd, version, err := s.definition(ctx, gv, resource)
	if err != nil || version == nil {
		return nil, err
	}
	if apihelpers.IsCRDConditionFalse(crd, apiextensionsv1.NamesAccepted) || crd.DeletionTimestamp != nil {
		return nil, nil
	}
	own := metav1.APIResource{Name: resource, Kind: crd.Spec.Names.Kind, Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped}
	resources := map[string]metav1.APIResource{resource: own}
	if sub := version.Subresources; sub != nil && sub.Status != nil {
		resources[resource+"/status"] = metav1.APIResource{Name: resource + "/status"}
	}
	return resources, nil
}

// definition returns a CustomResourceDefinition and a version of it that is to be served; none if there is no such version, or it may not be read.
func (s *served) definition(
	ctx context.Context, gv schema.GroupVersion, resource string,
) (*apiextensionsv1.CustomResourceDefinition, *apiextensionsv1.CustomResourceDefinitionVersion, error) {
	if !strings.Contains(gv.Group, ".") {
		return nil, nil, nil // It is one of Kubernetes.
	}
	name := schema.GroupResource{Group: gv.Group, Resource: resource}.String()
	body, err := s.client.RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name).
		SetHeader("Accept", "application/json").DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(body, &crd); err != nil {
		return nil, nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
	}
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == gv.Version && v.Served
	})
	if i < 0 {
		return nil, nil, nil
	}
	return &crd, &crd.Spec.Versions[i], nil
}
