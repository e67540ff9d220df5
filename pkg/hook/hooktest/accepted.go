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

package hooktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// controllerUID is the label of children for which the server generates the selector.
const controllerUID = "controller-uid"

// wanted returns the children of a response, which must be such as the server accepts, completed as the server does
// (docs/reference/contract.md#s7).
func (m *model) wanted(response *wire.Response) ([]*hook.Object, error) {
	if response.Delete && !m.mayDelete() {
		return nil, errors.New(`it has "delete": true, and no rule of spec.resources for the target sets allowDelete`)
	}
	selector, err := m.selector()
	if err != nil {
		return nil, err
	}
	decoded, err := response.Children()
	if err != nil {
		return nil, err
	}
	seen := map[childKey]bool{}
	children := make([]*hook.Object, 0, len(decoded))
	for i, fields := range decoded {
		child := &hook.Object{Object: fields}
		metadata, err := identify(fields)
		if err != nil {
			return nil, fmt.Errorf("child %d, a %s, %w", i, child.GetKind(), err)
		}
		if err := m.place(child, metadata); err != nil {
			return nil, fmt.Errorf("%s %w", keyOf(child), err)
		}
		if err := m.label(metadata, selector); err != nil {
			return nil, fmt.Errorf("%s: %w", keyOf(child), err)
		}
		if seen[keyOf(child)] {
			return nil, fmt.Errorf("%s is there twice", keyOf(child))
		}
		seen[keyOf(child)] = true
		children = append(children, child)
	}
	return children, nil
}

// identify checks the version and the name of a child, and returns its metadata.
func identify(child map[string]any) (map[string]any, error) {
	apiVersion, _ := child["apiVersion"].(string)
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || version.Version == "" || len(content.IsPathSegmentName(version.Version)) > 0 {
		return nil, fmt.Errorf("has the apiVersion %q, which is not group/version", apiVersion)
	}
	metadata, _ := child["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if name == "" {
		return nil, errors.New("has no name")
	}
	if reasons := content.IsPathSegmentName(name); len(reasons) > 0 {
		return nil, fmt.Errorf("has the name %q, which %s", name, strings.Join(reasons, ", "))
	}
	return metadata, nil
}

// place checks that a child is of a declared kind, and gives it its namespace, where it may be.
func (m *model) place(child *hook.Object, metadata map[string]any) error {
	rule, ok := m.rule(child)
	if !ok {
		return fmt.Errorf("is of %s, which the controller does not declare", hook.TypeKey(child.GetAPIVersion(), child.GetKind()))
	}
	namespace, isText := metadata["namespace"].(string)
	if !isText && metadata["namespace"] != nil {
		return errors.New("has a namespace that is not a string")
	}
	if reasons := content.IsPathSegmentName(namespace); len(reasons) > 0 {
		return fmt.Errorf("has the namespace %q, which %s", namespace, strings.Join(reasons, ", "))
	}
	namespaced, known := m.trial.Namespaced[rule.Resource]
	of := m.parent.GetNamespace()
	switch {
	case known && !namespaced && of != "":
		return errors.New("is cluster-scoped, and its parent is in a namespace")
	case known && !namespaced:
		delete(metadata, "namespace")
	case known && namespace == "" && of == "":
		return errors.New("has no namespace, and neither has its parent")
	case namespace == "" && of != "":
		metadata["namespace"] = of
	case of != "" && namespace != of:
		return errors.New("is in another namespace than its parent")
	}
	return nil
}

// rule returns the rule that declares the kind of a child, in whichever version (docs/reference/compatibility.md#d11).
func (m *model) rule(child *hook.Object) (v1alpha1.ResourceRule, bool) {
	for _, rule := range m.rules {
		if groupOf(rule.APIVersion) == groupOf(child.GetAPIVersion()) && m.trial.Kinds[rule.Resource] == child.GetKind() {
			return rule, true
		}
	}
	return v1alpha1.ResourceRule{}, false
}

// groupOf returns the group of an apiVersion.
func groupOf(apiVersion string) string {
	group, _, named := strings.Cut(apiVersion, "/")
	if !named {
		return ""
	}
	return group
}

// label gives a child the label by which its parent finds it if the server does so, and checks its labels and annotations. The selector
// is nil for attachments, of which labels that are null are none.
func (m *model) label(metadata map[string]any, selector labels.Selector) error {
	dropNulls(metadata, "annotations")
	if selector == nil {
		dropNulls(metadata, "labels")
	}
	if _, err := texts(metadata, "annotations"); err != nil {
		return err
	}
	set, err := texts(metadata, "labels")
	if err != nil || selector == nil {
		return err
	}
	if _, has := set[controllerUID]; m.generates() && !has {
		set[controllerUID] = string(m.parent.GetUID())
		with := map[string]any{}
		for name, value := range set {
			with[name] = value
		}
		metadata["labels"] = with
	}
	if !selector.Matches(labels.Set(set)) {
		return fmt.Errorf("its labels do not match the parent's selector %s", selector)
	}
	return nil
}

func dropNulls(metadata map[string]any, field string) {
	entries, _ := metadata[field].(map[string]any)
	maps.DeleteFunc(entries, func(_ string, value any) bool { return value == nil })
}

// texts returns the labels or annotations of an object, which must be strings.
func texts(metadata map[string]any, field string) (map[string]string, error) {
	result := map[string]string{}
	entries, ok := metadata[field].(map[string]any)
	if !ok && metadata[field] != nil {
		return nil, fmt.Errorf("its %s are not an object", field)
	}
	for name, value := range entries {
		if result[name], ok = value.(string); !ok {
			return nil, fmt.Errorf("the value %v of %q in its %s is not a string", value, name, field)
		}
	}
	return result, nil
}

// generates reports whether the server generates the selectors of parents.
func (m *model) generates() bool {
	generate := m.trial.Composite.Spec.GenerateSelector
	return generate != nil && *generate
}

// selector returns the selector of the parent of a CompositeController, without which no sync succeeds; nil for a DecoratorController.
func (m *model) selector() (labels.Selector, error) {
	if m.trial.Composite == nil {
		return nil, nil
	}
	if m.generates() {
		return labels.SelectorFromSet(labels.Set{controllerUID: string(m.parent.GetUID())}), nil
	}
	encoded, err := json.Marshal(m.parent.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("encoding the parent: %w", err)
	}
	var spec struct {
		Selector metav1.LabelSelector `json:"selector"`
	}
	if err := json.Unmarshal(encoded, &spec); err != nil {
		return nil, fmt.Errorf("reading the parent's selector: %w", err)
	}
	if len(spec.Selector.MatchLabels) == 0 && len(spec.Selector.MatchExpressions) == 0 {
		return nil, errors.New("the parent has no spec.selector that selects something, and the controller does not generate selectors")
	}
	selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("reading the parent's selector: %w", err)
	}
	return selector, nil
}

// mayDelete reports whether the hook may delete the target. The kind of a target is that of its rule, unless Kinds say otherwise.
func (m *model) mayDelete() bool {
	if m.trial.Decorator == nil {
		return false
	}
	return slices.ContainsFunc(m.trial.Decorator.Spec.Resources, func(rule v1alpha1.DecoratorControllerResourceRule) bool {
		kind, known := m.trial.Kinds[rule.Resource]
		return groupOf(rule.APIVersion) == groupOf(m.parent.GetAPIVersion()) && (!known || kind == m.parent.GetKind()) &&
			rule.AllowDelete != nil && *rule.AllowDelete
	})
}
