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

package registration

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Unregister deletes what Register applied, except for the namespace, which may hold objects of others: earlier versions applied
// labels to it, which are taken off. A role that Register has left to others stays. Objects that are not there are no error. It refuses with an
// *OccupiedError when the registration is that of another server, and deletes nothing then. The server's own objects stay in its store.
func Unregister(ctx context.Context, config *rest.Config, out io.Writer) error {
	if out == nil {
		out = io.Discard
	}
	client, err := newClient(config)
	if err != nil {
		return err
	}
	if err := checkExisting(ctx, client); err != nil {
		return err
	}
	objects, err := manifests(Options{})
	if err != nil {
		return err
	}
	// Backwards: the cluster must stop asking for the server before the way to it goes.
	for _, object := range slices.Backward(objects) {
		if object.GetKind() == kindNamespace {
			err = releaseNamespace(ctx, client, object.GetName(), out)
		} else {
			err = remove(ctx, client, object, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// belongsToOthers reports whether a role is not that of register, or not any more, and then tells the user. One that was narrowed stays: with
// bindings of the user's, the next one that register makes would give all rights back.
func belongsToOthers(ctx context.Context, target dynamic.ResourceInterface, role *unstructured.Unstructured, out io.Writer) (bool, error) {
	existing, err := target.Get(ctx, role.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", describe(role), err)
	}
	if !appliedHere(existing) {
		progressf(out, "%s is not that of register and stays", describe(role))
		return true, nil
	}
	authors, _, _, err := rewritten(existing, role)
	if err != nil || len(authors) == 0 {
		return false, err
	}
	progressf(out, "%s was written by %s and stays", describe(role), strings.Join(authors, ", "))
	return true, nil
}

// remove deletes one object of a registration.
func remove(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured, out io.Writer) error {
	target, err := resourceFor(client, object)
	if err != nil {
		return err
	}
	if object.GetKind() == kindClusterRole || object.GetKind() == kindRole {
		stays, err := belongsToOthers(ctx, target, object, out)
		if err != nil || stays {
			return err
		}
	}
	err = target.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("deleting %s: %w", describe(object), err)
	default:
		progressf(out, "deleted %s", describe(object))
	}
	return nil
}
