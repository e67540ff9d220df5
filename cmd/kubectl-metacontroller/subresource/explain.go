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

package subresource

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// ErrDefinitions says that no API server of Metacontroller is there to answer for controllers, only definitions, which have no such subresources.
var ErrDefinitions = errors.New("the cluster serves controllers by CustomResourceDefinitions")

// explain adds to an error of a subresource what to do next. Nil stays nil.
func (c *Client) explain(ctx context.Context, err error, verb, subresource string) error {
	if err == nil {
		return nil
	}
	// What does not come from the server of the API group, but from something before it, says nothing of controllers.
	elsewhere := apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	name := c.object.Argument()
	switch {
	case apierrors.IsNotFound(err) && elsewhere:
		return fmt.Errorf("the cluster has no subresource %s of controllers: it serves them by CustomResourceDefinitions, or its server is older than "+
			"this plugin; compare them with '%s version'", subresource, connection.Program)
	case apierrors.IsNotFound(err) && isOf(err, c.resource()) && c.exists(ctx):
		return fmt.Errorf("%w, and '%s' needs the API server: see docs/operations/definitions.md", ErrDefinitions, subresource)
	case subresource == "rollback" && strings.Contains(err.Error(), "updated by a rolling method"):
		return fmt.Errorf("%w: set a rolling updateStrategy.method, or write the old fields back", err)
	case apierrors.IsNotFound(err) && isOf(err, "controllerrevisions"):
		return fmt.Errorf("%w: list those that there are with 'kubectl get controllerrevisions.metacontroller.k8s.io --all-namespaces'", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: list those that %s has with '%s parents %s --all'", err, name, connection.Program, name)
	case apierrors.IsServiceUnavailable(err) && !elsewhere:
		return fmt.Errorf("%w: see '%s status %s'", err, connection.Program, name)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: the ClusterRole metacontroller-inspection has the rights on the subresources; see what you may do with "+
			"'kubectl auth can-i %s %s.metacontroller.k8s.io --subresource=%s' and 'kubectl auth can-i --list'", err, verb, c.resource(), subresource)
	case apierrors.IsTooManyRequests(err):
		return fmt.Errorf("%w: the server works out a few plans and requests at the same time; run the command again", err)
	case subresource != "rollback" && (apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)):
		return fmt.Errorf("%w: see how long its hook takes with '%s status %s'", err, connection.Program, name)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: see '%s parents %s --all'", err, connection.Program, name)
	}
	return connection.Explain(err)
}

// exists reports whether the cluster has the controller. Of a custom resource, kube-apiserver answers for a subresource that it does not have as
// for an object that does not exist.
func (c *Client) exists(ctx context.Context) bool {
	return c.api.Get().Resource(c.resource()).Name(c.object.Name()).Do(ctx).Error() == nil
}

// isOf reports whether an error is about objects of a resource.
func isOf(err error, resource string) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.Status().Details != nil && status.Status().Details.Kind == resource
}

// IsHidden reports whether an error says that the caller may not see what would be shown of a parent. That he may not use the subresource at all is
// an error about the controller.
func IsHidden(err error, p v1alpha1.ParentReference) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(err) || status.Status().Details == nil {
		return false
	}
	about := status.Status().Details
	return about.Group == p.Group && about.Kind == p.Resource && about.Name == p.Name
}
