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

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

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
	text := fmt.Sprintf("the controller handles %s, of which there are some: ", parents)
	const again = " until you create a controller for them again"
	if len(d.children) == 0 {
		return text + "they are not finalized" + again
	}
	what, cure := "children", fmt.Sprintf("delete the %s before the controller", parents)
	if d.kind == v1alpha1.KindDecorator {
		// Its targets are seldom there for its sake.
		what, cure = "attachments", "have the hook return none before you delete the controller"
	}
	text += "their " + what + " stay, and nobody updates them"
	if d.finalizes {
		text += ", nor are they finalized"
	}
	return text + again + "; to have the " + what + " deleted as well, " + cure
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
