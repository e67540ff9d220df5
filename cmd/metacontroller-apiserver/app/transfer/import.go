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

package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// fieldManager is the name under which the API server records what is created.
const fieldManager = "metacontroller-apiserver-import"

// importing says how objects are created.
type importing struct {
	paused, replace, dryRun bool
}

// run creates objects in their order. It goes on after one that it cannot create, and returns how many are not as in the file.
func (o importing) run(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured, out io.Writer) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	asked, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	owners := owners{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(asked))}
	failed := 0
	for _, object := range objects {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		k, _ := kindOf(object) // Others were refused when the file was read.
		done, err := o.one(ctx, client, owners, k, object)
		if err != nil {
			failed++
			done = err.Error()
		}
		fmt.Fprintf(out, "%s: %s\n", describe(k, object), done)
		for _, line := range leftovers(k, object) {
			fmt.Fprintln(out, "  "+line)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d objects are not as in the file: see above", failed, len(objects))
	}
	return nil
}

// one creates an object, and says in a word what was done.
func (o importing) one(ctx context.Context, client dynamic.Interface, owners owners, k kind, object *unstructured.Unstructured) (string, error) {
	if k.namespaced {
		if why, err := owners.missing(ctx, object); why != "" || err != nil {
			return "left out: " + why, err
		}
	}
	wanted := clean(object)
	unstructured.RemoveNestedField(wanted.Object, "status")
	if o.paused && k.controller {
		if err := unstructured.SetNestedField(wanted.Object, true, "spec", "paused"); err != nil {
			return "", fmt.Errorf("not created: setting spec.paused: %w", err)
		}
	}
	objects := client.Resource(k.resource()).Namespace(object.GetNamespace())
	existing, err := objects.Get(ctx, object.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		// Fields that the server does not know are an error rather than lost.
		_, err = objects.Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict, DryRun: o.dry()})
		if err != nil {
			return "", fmt.Errorf("not created: %w", err)
		}
		return o.done("created"), nil
	case err != nil:
		return "", fmt.Errorf("not created: looking whether it exists: %w", err)
	}
	return o.compare(ctx, objects, existing, wanted)
}

// compare deals with an object that exists.
func (o importing) compare(ctx context.Context, objects dynamic.ResourceInterface, existing, wanted *unstructured.Unstructured) (string, error) {
	if existing.GetDeletionTimestamp() != nil {
		return "", errors.New("exists, and is being deleted: import it again when it is gone")
	}
	replacement := existing.DeepCopy()
	for _, field := range []string{"spec", "parentPatch", "children"} {
		if value, found := wanted.Object[field]; found {
			replacement.Object[field] = value
		} else {
			delete(replacement.Object, field)
		}
	}
	replacement.SetLabels(wanted.GetLabels())
	replacement.SetAnnotations(wanted.GetAnnotations())
	replacement.SetOwnerReferences(wanted.GetOwnerReferences())
	// What the server makes of it counts: it fills in defaults.
	checked, err := objects.Update(ctx, replacement, metav1.UpdateOptions{
		FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll},
	})
	if err != nil {
		return "", fmt.Errorf("exists, and cannot be made what the file says: %w", err)
	}
	differing := differences(existing, checked)
	switch {
	case len(differing) == 0:
		return "unchanged", nil
	case !o.replace:
		return "", fmt.Errorf("exists, and differs in %s; --replace makes it what the file says", strings.Join(differing, ", "))
	case o.dryRun:
		return o.done("replaced"), nil
	}
	if _, err := objects.Update(ctx, replacement, metav1.UpdateOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict}); err != nil {
		return "", fmt.Errorf("not replaced: %w", err)
	}
	return "replaced", nil
}

// differences names the parts in which two objects differ that are not the server's own.
func differences(a, b *unstructured.Unstructured) []string {
	var parts []string
	for _, field := range []string{"spec", "parentPatch", "children"} {
		if !equality.Semantic.DeepEqual(a.Object[field], b.Object[field]) {
			parts = append(parts, field)
		}
	}
	if !maps.Equal(a.GetLabels(), b.GetLabels()) {
		parts = append(parts, "labels")
	}
	if !maps.Equal(a.GetAnnotations(), b.GetAnnotations()) {
		parts = append(parts, "annotations")
	}
	if !equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences()) {
		parts = append(parts, "owners")
	}
	return parts
}

func (o importing) dry() []string {
	if o.dryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

func (o importing) done(what string) string {
	if o.dryRun {
		return "would be " + what
	}
	return what
}

// leftovers says of which resources objects may carry the finalizer of a controller that does not finalize them any more.
func leftovers(k kind, object *unstructured.Unstructured) (lines []string) {
	recorded, _, _ := unstructured.NestedSlice(object.Object, "status", finalizedResources)
	declared := declared(object)
	for _, entry := range recorded {
		fields, _ := entry.(map[string]any)
		group, _ := fields["group"].(string)
		name, _ := fields["resource"].(string)
		full := schema.GroupResource{Group: group, Resource: name}.String()
		if !slices.Contains(declared, full) {
			lines = append(lines, fmt.Sprintf("objects of %s may carry its finalizer, and the definition does not finalize them: metacontroller-apiserver "+
				"release-finalizers %s/%s --resource %s --force --yes", full, k.plural[:len(k.plural)-1], object.GetName(), full))
		}
	}
	return lines
}

// declared returns the resources whose objects a definition finalizes.
func declared(object *unstructured.Unstructured) (resources []string) {
	if hook, _, _ := unstructured.NestedMap(object.Object, "spec", "hooks", "finalize"); len(hook) == 0 {
		return nil
	}
	rules, _, _ := unstructured.NestedSlice(object.Object, "spec", "resources")
	if parent, found, _ := unstructured.NestedMap(object.Object, "spec", "parentResource"); found {
		rules = append(rules, parent)
	}
	for _, rule := range rules {
		fields, _ := rule.(map[string]any)
		version, _ := fields["apiVersion"].(string)
		name, _ := fields["resource"].(string)
		group := schema.FromAPIVersionAndKind(version, "").Group
		resources = append(resources, schema.GroupResource{Group: group, Resource: name}.String())
	}
	return resources
}

// owners finds the parents to which revisions belong.
type owners struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

// missing says why a revision has no parent, empty if it has the one that it refers to. A revision without a reference belongs to the
// parent of which its name has the UID's digest, which cannot be looked up.
func (o owners) missing(ctx context.Context, revision *unstructured.Unstructured) (why string, err error) {
	owner := metav1.GetControllerOfNoCopy(revision)
	if owner == nil {
		return "", nil
	}
	name := owner.Kind + " " + owner.Name
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return "", fmt.Errorf("not created: its parent %s has the version %q", name, owner.APIVersion)
	}
	mapping, err := o.mapper.RESTMapping(schema.GroupKind{Group: version.Group, Kind: owner.Kind}, version.Version)
	if meta.IsNoMatchError(err) {
		return fmt.Sprintf("the cluster does not serve the kind of its parent %s %s", owner.APIVersion, name), nil
	}
	if err != nil {
		return "", fmt.Errorf("not created: looking for the kind of its parent %s: %w", name, err)
	}
	var objects dynamic.ResourceInterface = o.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		objects = o.client.Resource(mapping.Resource).Namespace(revision.GetNamespace())
	}
	parent, err := objects.Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("its parent %s is gone", name), nil
	case err != nil:
		return "", fmt.Errorf("not created: looking for its parent %s: %w", name, err)
	case parent.GetUID() != owner.UID:
		return fmt.Sprintf("its parent %s is another object by now, with another UID", name), nil
	}
	return "", nil
}

// readFile returns the objects in a file, in the order in which they are to be created.
func readFile(filename string, in io.Reader) ([]*unstructured.Unstructured, error) {
	f, err := open(filename, in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	objects, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", filename, err)
	}
	return objects, nil
}

// read returns the objects in documents of YAML or JSON. Lists are taken apart.
func read(in io.Reader) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	manifests, err := controllerobject.Manifests(in, yaml.YAMLToJSONStrict)
	if err != nil {
		return nil, err
	}
	for _, m := range manifests {
		o, err := decode(m)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", m.Document, err)
		}
		if o != nil {
			objects = append(objects, o)
		}
	}
	if len(objects) == 0 {
		return nil, errors.New("it holds no controller and no ControllerRevision: export writes such a file, and so does kubectl get -o yaml")
	}
	order := map[string]int{}
	for i, k := range kinds() {
		order[k.name] = i
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return cmp.Compare(order[a.GetKind()], order[b.GetKind()]) })
	return objects, nil
}

// decode returns an object, nil for an empty document.
func decode(m controllerobject.Manifest) (*unstructured.Unstructured, error) {
	if m.Err != nil {
		return nil, m.Err
	}
	var content map[string]any
	if err := json.Unmarshal(m.JSON, &content); err != nil {
		return nil, errors.New("it is no object")
	}
	if len(content) == 0 {
		return nil, nil
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(m.JSON); err != nil {
		return nil, err
	}
	return o, accept(o)
}

// accept refuses an object of a kind that does not move. It takes the namespace off one of a kind that has none, as API servers do with a body.
func accept(o *unstructured.Unstructured) error {
	k, ok := kindOf(o)
	if !ok {
		return fmt.Errorf("%s %s is neither a controller nor a ControllerRevision", o.GetKind(), o.GetName())
	}
	if !k.namespaced {
		o.SetNamespace("") // It would be part of the address.
	}
	return nil
}

// kind is a kind of objects that move.
type kind struct {
	name, plural string
	namespaced   bool
	// controller says that it is one of the kinds that run.
	controller bool
}

// kinds are the kinds that move, in the order in which they are created: a controller begins as soon as it is there, and then needs its
// revisions.
func kinds() []kind {
	return []kind{
		{name: "ControllerRevision", plural: "controllerrevisions", namespaced: true},
		{name: "CompositeController", plural: "compositecontrollers", controller: true},
		{name: "DecoratorController", plural: "decoratorcontrollers", controller: true},
	}
}

func (k kind) resource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(k.plural)
}

// kindOf returns the kind of an object; false if it does not move.
func kindOf(o *unstructured.Unstructured) (kind, bool) {
	for _, k := range kinds() {
		if o.GroupVersionKind().GroupKind() == v1alpha1.SchemeGroupVersion.WithKind(k.name).GroupKind() {
			return k, true
		}
	}
	return kind{}, false
}

// describe names an object as kubectl does.
func describe(k kind, o *unstructured.Unstructured) string {
	name := k.plural[:len(k.plural)-1] + "." + v1alpha1.GroupName + "/" + o.GetName()
	if o.GetNamespace() != "" {
		name += " in namespace " + o.GetNamespace()
	}
	return name
}

// clean takes off what whoever stores an object gives it. Owners stay, with their UIDs: they are objects of the cluster.
func clean(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
	} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	finalizers := slices.DeleteFunc(o.GetFinalizers(), func(name string) bool { return name == v1alpha1.FinalizerParents })
	if len(finalizers) == 0 {
		finalizers = nil
	}
	o.SetFinalizers(finalizers)
	finalized, found, err := unstructured.NestedSlice(o.Object, "status", finalizedResources)
	unstructured.RemoveNestedField(o.Object, "status")
	if found && err == nil && len(finalized) > 0 {
		o.Object["status"] = map[string]any{finalizedResources: finalized}
	}
	return o
}

// finalizedResources is the field of the status that is kept: what is in it that the definition does not finalize any more is to be
// released.
const finalizedResources = "finalizedResources"
