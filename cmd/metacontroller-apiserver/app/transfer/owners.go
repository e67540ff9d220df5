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
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

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
