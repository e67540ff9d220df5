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

package inspect

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

const (
	// defaultLimit and maxLimit are how many parents a response has at most.
	defaultLimit = 100
	maxLimit     = 500
)

// selected are the parents that a request selects and the caller may see, in order.
type selected struct {
	parents []v1alpha1.ParentReference
	// hidden counts those that he may not see. With a name or labels it counts those alone of which he may get the parent and not the
	// children: else the number would tell what parents there are of that name, and what labels they have.
	hidden int64
}

// selectParents returns the parents of a controller that are selected and that the caller sees: he may get them and, if children is set,
// the declared kinds of children beside them.
func selectParents(
	ctx context.Context, who *caller, c inspection.Controller, selection *v1alpha1.ParentSelection, children bool,
) (selected, error) {
	selector, err := selectorOf(selection)
	if err != nil {
		return selected{}, err
	}
	return selectLabeled(ctx, who, c, selection, selector, children)
}

// selectLabeled is selectParents with a selector in place of that of the selection.
func selectLabeled(
	ctx context.Context, who *caller, c inspection.Controller, selection *v1alpha1.ParentSelection, selector labels.Selector, children bool,
) (selected, error) {
	if err := checkResource(c, selection); err != nil {
		return selected{}, err
	}
	matching := match(c.Parents(), selection, selector)
	var kinds []inspection.Kind
	if children {
		kinds = c.Children()
	}
	var places []inspection.Place
	seen := map[inspection.Place]bool{}
	for _, p := range matching {
		if at := placeOf(p); !seen[at] {
			seen[at] = true
			places = append(places, around(p, kinds)...)
		}
	}
	if err := who.learn(ctx, places); err != nil {
		return selected{}, err
	}
	var s selected
	telling := selection != nil && selection.Name != "" || !selector.Empty()
	for _, p := range matching {
		switch {
		case who.sees(around(p, kinds)...):
			s.parents = append(s.parents, p)
		case !telling || who.sees(placeOf(p)):
			s.hidden++
		}
	}
	return s, nil
}

// checkResource returns an error if a selection names a resource of which the controller never has parents: its response would be empty.
func checkResource(c inspection.Controller, selection *v1alpha1.ParentSelection) error {
	if selection == nil || selection.Resource == "" || slices.Contains(c.Resources(), schema.ParseGroupResource(selection.Resource)) {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("resource: the controller has no parents of the resource %q; it has those of %q", selection.Resource, namesOfAll(c.Resources())))
}

func namesOfAll(resources []schema.GroupResource) (names []string) {
	for _, r := range resources {
		names = append(names, r.String())
	}
	return names
}

// match returns the parents that a selection selects, in order; nil selects all.
func match(all []inspection.Parent, selection *v1alpha1.ParentSelection, selector labels.Selector) []v1alpha1.ParentReference {
	if selection == nil {
		selection = &v1alpha1.ParentSelection{}
	}
	resource := schema.ParseGroupResource(selection.Resource)
	var list []v1alpha1.ParentReference
	for _, p := range all {
		if selection.Resource != "" && (resource.Group != p.Group || resource.Resource != p.Resource) ||
			selection.Namespace != "" && selection.Namespace != p.Namespace || selection.Name != "" && selection.Name != p.Name ||
			!selector.Matches(p.Labels) {
			continue
		}
		list = append(list, p.ParentReference)
	}
	slices.SortFunc(list, compare)
	return list
}

// selectorOf selects the labels of a selection, which is nil for all parents.
func selectorOf(selection *v1alpha1.ParentSelection) (labels.Selector, error) {
	if selection == nil || selection.LabelSelector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(selection.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("parents.labelSelector: %v", err))
	}
	return selector, nil
}

// parseSelector reads the query parameter labelSelector, which is empty for all parents.
func parseSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	return selector, nil
}

func compare(a, b v1alpha1.ParentReference) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name))
}

func placeOf(p v1alpha1.ParentReference) inspection.Place {
	return inspection.Place{GroupResource: schema.GroupResource{Group: p.Group, Resource: p.Resource}, Namespace: p.Namespace}
}

// around returns where a parent is, and where its children may be.
func around(p v1alpha1.ParentReference, kinds []inspection.Kind) []inspection.Place {
	places := []inspection.Place{placeOf(p)}
	for _, kind := range kinds {
		at := inspection.Place{GroupResource: kind.GroupResource}
		if kind.Namespaced {
			at.Namespace = p.Namespace
		}
		places = append(places, at)
	}
	return places
}

// from returns the parents behind the one that a token names; all without a token.
func from(list []v1alpha1.ParentReference, token string) ([]v1alpha1.ParentReference, error) {
	if token == "" {
		return list, nil
	}
	var last v1alpha1.ParentReference
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("continue: it is not what a former response returned")
	}
	at, found := slices.BinarySearchFunc(list, last, compare)
	if found {
		at++
	}
	return list[at:], nil
}

// token names a parent for from.
func token(last v1alpha1.ParentReference) (string, error) {
	text, err := json.Marshal(last)
	if err != nil {
		return "", fmt.Errorf("encoding the place in a list: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(text), nil
}

// limited returns how many parents a response has at most.
func limited(asked int64) int {
	if asked <= 0 {
		return defaultLimit
	}
	return int(min(asked, maxLimit))
}
