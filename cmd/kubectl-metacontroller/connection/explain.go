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

package connection

import (
	"context"
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Explain adds to an error of a request to the API group what to look at next. Other errors, and nil, are returned as they are.
func Explain(err error) error { return ExplainOf(v1alpha1.GroupName, err) }

// ExplainOf is Explain for requests to any API group.
func ExplainOf(group string, err error) error {
	var network net.Error
	switch {
	case err == nil:
		return nil
	case apierrors.IsServiceUnavailable(err) && group != v1alpha1.GroupName:
		return fmt.Errorf("%w: see 'kubectl get apiservices' and 'kubectl get --raw /readyz?verbose'", err)
	case apierrors.IsServiceUnavailable(err):
		return fmt.Errorf("%w: the server of metacontroller.k8s.io is not available; "+
			"see 'kubectl describe apiservice v1alpha1.metacontroller.k8s.io'", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: see what you may do with 'kubectl auth can-i --list'", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the cluster does not know you; see 'kubectl auth whoami'", err)
	case errors.Is(err, context.Canceled):
		return err // It says nothing of the cluster, though it comes as an error of the network.
	case errors.As(err, &network):
		return fmt.Errorf("%w: the cluster cannot be reached; see 'kubectl cluster-info' and 'kubectl config get-contexts'", err)
	}
	return err
}
