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

package children

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// shown is how many violations of a response are named at once.
const shown = 3

// Scope is what Validate must know of the parent.
type Scope struct {
	// Field is where the children stand in the response: "children" or "attachments".
	Field string
	// Declared is where their kinds are declared: "spec.childResources" or "spec.attachments".
	Declared string
	// Namespace is the parent's namespace, empty for a cluster-scoped parent.
	Namespace string
	// Selector must match the labels of every child. Nil: no demand.
	Selector labels.Selector
	// Labels are added to children that do not have them. With some, the Selector is generated.
	Labels map[string]string
	// Inherited are the labels of the parent, which hooks copy. Nil: it has none.
	Inherited labels.Labels
	// Annotations are set on every child.
	Annotations map[string]string
}

// Validate completes the children of a response and checks them against the rules. It takes possession of list. Children of a
// group of which a declared kind is not served now, and whose own kind is not known for that reason, are left out and returned
// as unserved. The error is a *hook.RejectedError.
func Validate(scope Scope, rules Rules, list []map[string]any) (desired []Desired, unserved []Key, err error) {
	desired = make([]Desired, 0, len(list))
	seen := make(map[Key]int, len(list))
	var violations []string
	for i, content := range list {
		d, served, err := scope.validate(rules, content)
		if err == nil {
			if first, ok := seen[d.Key]; ok {
				err = fmt.Errorf("%s is there twice, also as %s[%d]; return each %s once", d.Key, scope.Field, first, d.Kind)
			} else {
				seen[d.Key] = i
			}
		}
		switch {
		case err != nil:
			violations = append(violations, fmt.Sprintf("%s[%d]: %v", scope.Field, i, err))
		case served:
			desired = append(desired, d)
		default:
			unserved = append(unserved, d.Key)
		}
	}
	if len(violations) == 0 {
		return desired, unserved, nil
	}
	text := strings.Join(violations[:min(shown, len(violations))], "; ")
	if more := len(violations) - shown; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return nil, nil, &hook.RejectedError{Detail: text}
}

// validate completes and checks one child. It is not served if its kind is not known because a declared one is missing.
func (s Scope) validate(rules Rules, child map[string]any) (d Desired, served bool, err error) {
	metadata, err := d.identify(child)
	if err != nil {
		return d, false, err
	}
	rule, ok := rules.For(d.GroupKind())
	if rules.MayBeMissing(d.GroupKind()) {
		d.Namespace, _ = text(metadata, "namespace")
		return d, false, nil
	}
	if !ok {
		return d, false, fmt.Errorf("%s is of kind %s in %s, which is not declared; add it to %s", d.Key, d.Kind, d.APIVersion, s.Declared)
	}
	if err := s.place(rule, metadata, &d); err != nil {
		return d, false, err
	}
	if err := s.label(metadata, d.Key); err != nil {
		return d, false, err
	}
	d.Content = child
	return d, true, nil
}

// identify reads the version, the kind and the name of a child. It returns the child's metadata.
func (d *Desired) identify(child map[string]any) (map[string]any, error) {
	if child == nil {
		return nil, fmt.Errorf("is null; leave it out")
	}
	var ok bool
	if d.APIVersion, ok = text(child, "apiVersion"); !ok {
		return nil, fmt.Errorf("has no apiVersion; each child needs apiVersion, kind and metadata.name")
	}
	if d.Kind, ok = text(child, "kind"); !ok {
		return nil, fmt.Errorf("has no kind")
	}
	version, err := schema.ParseGroupVersion(d.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("has the apiVersion %q, which is not group/version", d.APIVersion)
	}
	if reasons := content.IsPathSegmentName(version.Version); len(reasons) > 0 || version.Version == "" {
		return nil, fmt.Errorf("has the apiVersion %q, whose version is none", d.APIVersion)
	}
	d.Group = version.Group
	metadata, err := objectIn(child, "metadata")
	if err != nil {
		return nil, err
	}
	if d.Name, ok = text(metadata, "name"); !ok {
		if _, generated := text(metadata, "generateName"); generated {
			return nil, fmt.Errorf("%s has generateName but no name; a child is found again by its name, so give it one that stays the same", d.Kind)
		}
		return nil, fmt.Errorf("%s has no metadata.name", d.Kind)
	}
	// Names become parts of URLs.
	if reasons := content.IsPathSegmentName(d.Name); len(reasons) > 0 {
		return nil, fmt.Errorf("%s has the metadata.name %q, which %s", d.Kind, d.Name, strings.Join(reasons, ", "))
	}
	return metadata, nil
}

// place gives the child its namespace and checks that it may be there (docs/reference/compatibility.md#d8).
func (s Scope) place(rule Rule, metadata map[string]any, d *Desired) error {
	if namespace, there := metadata["namespace"]; there && namespace != nil {
		if d.Namespace, there = namespace.(string); !there {
			return fmt.Errorf("%s has a metadata.namespace that is not a string", d.Key)
		}
		if reasons := content.IsPathSegmentName(d.Namespace); len(reasons) > 0 {
			return fmt.Errorf("%s has the metadata.namespace %q, which %s", d.Key, d.Namespace, strings.Join(reasons, ", "))
		}
	}
	switch {
	case !rule.Namespaced:
		if s.Namespace != "" {
			return fmt.Errorf("%s is cluster-scoped, but its parent is in namespace %s; a namespaced parent can only have children "+
				"in its namespace", Key{Kind: d.Kind, Name: d.Name}, s.Namespace)
		}
		d.Namespace = ""
		delete(metadata, "namespace")
	case d.Namespace == "":
		if s.Namespace == "" {
			return fmt.Errorf("%s has no metadata.namespace; a child of a cluster-scoped parent must name one", d.Key)
		}
		d.Namespace = s.Namespace
		metadata["namespace"] = s.Namespace
	case s.Namespace != "" && d.Namespace != s.Namespace:
		return fmt.Errorf("%s is not in its parent's namespace %s; a namespaced parent can only have children in its namespace",
			d.Key, s.Namespace)
	}
	return nil
}

// label adds what the parent adds and checks the selector (docs/reference/contract.md#s7). An annotation that is null is none; so is a label where
// there is no selector.
func (s Scope) label(metadata map[string]any, key Key) error {
	dropNulls(metadata, "annotations")
	if s.Selector == nil {
		dropNulls(metadata, "labels")
	}
	set, err := texts(metadata, "labels")
	if err != nil {
		return fmt.Errorf("invalid labels on desired child %s: %w", key, err)
	}
	if _, err := texts(metadata, "annotations"); err != nil {
		return fmt.Errorf("invalid annotations on desired child %s: %w", key, err)
	}
	for name, value := range s.Labels {
		if _, ok := set[name]; !ok {
			set[name] = value
			put(metadata, "labels", name, value)
		}
	}
	for name, value := range s.Annotations {
		put(metadata, "annotations", name, value)
	}
	if s.Selector != nil && !s.Selector.Matches(labels.Set(set)) {
		return fmt.Errorf("labels on desired child %s don't match parent selector %s; %s", key, s.Selector, s.matching(set))
	}
	return nil
}

// matching says how a hook makes the labels of a child match.
func (s Scope) matching(set map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		value := set[name]
		switch {
		case value == s.Labels[name]:
		case s.Inherited != nil && s.Inherited.Get(name) == value:
			return fmt.Sprintf("the hook returned the label %s=%s, which it copied from the labels of the parent: leave it out of children, where the "+
				"server sets it", name, value)
		default:
			return fmt.Sprintf("the hook returned the label %s=%s, which is that of another parent: leave it out, the server sets it", name, value)
		}
	}
	return "give the child these labels, or set spec.generateSelector of the controller"
}

func text(from map[string]any, field string) (string, bool) {
	value, ok := from[field].(string)
	return value, ok && value != ""
}

// objectIn returns an object field, made if it is absent.
func objectIn(from map[string]any, field string) (map[string]any, error) {
	switch value := from[field].(type) {
	case map[string]any:
		return value, nil
	case nil:
		made := map[string]any{}
		from[field] = made
		return made, nil
	default:
		return nil, fmt.Errorf("has a %s that is not an object", field)
	}
}

// dropNulls removes the entries of a map that are null.
func dropNulls(from map[string]any, field string) {
	entries, _ := from[field].(map[string]any)
	maps.DeleteFunc(entries, func(_ string, value any) bool { return value == nil })
}

// texts returns a copy of a map of strings.
func texts(from map[string]any, field string) (map[string]string, error) {
	result := map[string]string{}
	if from[field] == nil {
		return result, nil
	}
	entries, ok := from[field].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("metadata.%s is not an object", field)
	}
	for name, value := range entries {
		if result[name], ok = value.(string); !ok {
			return nil, fmt.Errorf("the value of %q is not a string but %s; quote it, or leave it out", name, shownValue(value))
		}
	}
	return result, nil
}

// shownValue returns a value in JSON, cut short.
func shownValue(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil || len(encoded) > 40 {
		return fmt.Sprintf("of type %T", value)
	}
	return string(encoded)
}

func put(metadata map[string]any, field, name, value string) {
	entries, ok := metadata[field].(map[string]any)
	if !ok {
		entries = map[string]any{}
		metadata[field] = entries
	}
	entries[name] = value
}
