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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lookupsOfDeletion tell what is left when a definition is deleted.
func (p *Plugin) lookupsOfDeletion(d *definition) lookups {
	var all lookups
	for _, parent := range d.parents {
		all = append(all, lookup{parent.path, func(ctx context.Context) ([]string, error) { return p.warnLeft(ctx, d, parent) }})
	}
	return all
}

// asMetadata asks for the metadata of objects alone.
const asMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// warnLeft looks whether there are parents of a kind.
func (p *Plugin) warnLeft(ctx context.Context, d *definition, parent use) ([]string, error) {
	version, err := schema.ParseGroupVersion(parent.rule.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("parsing API version %s: %w", parent.rule.APIVersion, err)
	}
	root := "/apis/" + version.String()
	if version.Group == "" {
		root = "/api/" + version.Version
	}
	request := p.client.Discovery().RESTClient().Get().AbsPath(root, parent.rule.Resource).Param("limit", "1").SetHeader("Accept", asMetadata)
	if parent.selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(parent.selector)
		if err != nil {
			return nil, fmt.Errorf("reading the selector: %w", err)
		}
		request.Param("labelSelector", selector.String())
	}
	body, err := request.DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for %s: %w", parent.groupResource(), err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("reading the list of %s: %w", parent.groupResource(), err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	what, finalizes := "children", ""
	if d.kind == kindDecorator {
		what = "attachments"
	}
	if d.finalizes {
		finalizes = ", nor are they finalized"
	}
	return []string{fmt.Sprintf("the controller handles %s, of which there are some: their %s stay, and nobody updates them%s until you create a "+
		"controller for them again; to have the %s deleted as well, delete the %s before the controller",
		parent.groupResource(), what, finalizes, what, parent.groupResource())}, nil
}
