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

package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Serving returns a resource in the first version, by the preference of its group, in which the API server serves it. It asks
// the API server every time. A *NotFoundError says that the resource is served in no version.
func (d *Discovery) Serving(ctx context.Context, r schema.GroupResource) (Resource, error) {
	versions, err := d.askVersions(ctx, r.Group)
	if err != nil {
		return Resource{}, err
	}
	var failure error
	for _, version := range versions {
		resources, err := d.ask(ctx, schema.GroupVersion{Group: r.Group, Version: version})
		failure = errors.Join(failure, err)
		if found, ok := resources[r.Resource]; ok && found.Kind != "" {
			return found, nil
		}
	}
	if failure != nil {
		return Resource{}, failure
	}
	return Resource{}, &NotFoundError{APIVersion: r.Group, Resource: r.Resource}
}

// askVersions returns the versions of a group, the preferred one first, none if the group is not served.
func (d *Discovery) askVersions(ctx context.Context, group string) ([]string, error) {
	path := []string{"api"}
	if group != "" {
		path = []string{"apis", group}
	}
	data, err := d.client.Get().AbsPath(path...).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the versions of the group %q: %w", group, err)
	}
	// The core group has a list of names, every other one a list of objects.
	if group == "" {
		var core metav1.APIVersions
		if err := json.Unmarshal(data, &core); err != nil {
			return nil, fmt.Errorf("decoding the versions of the core group: %w", err)
		}
		return core.Versions, nil
	}
	var served metav1.APIGroup
	if err := json.Unmarshal(data, &served); err != nil {
		return nil, fmt.Errorf("decoding the versions of the group %q: %w", group, err)
	}
	var versions []string
	for _, v := range served.Versions {
		versions = append(versions, v.Version)
	}
	return versions, nil
}
