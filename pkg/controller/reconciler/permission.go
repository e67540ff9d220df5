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

package reconciler

import (
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/health"
)

// permitted is called when the service account may do what it could not do before.
func (c *Controller) permitted() {
	if !c.shared.Access.Held() {
		for _, key := range c.parents.all() {
			c.pool.Release(key)
		}
	}
	c.pool.RetryFailed(func(err error) bool { return access.IsNotPermitted(err) || forbidden(err) })
	select {
	case c.recheck <- struct{}{}:
	default:
	}
}

// forbidden reports whether an error, or one of those that it joins, says that an API server refused a request.
func forbidden(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(joined.Unwrap(), forbidden)
	}
	if wrapped, ok := err.(interface{ Unwrap() error }); ok && forbidden(wrapped.Unwrap()) {
		return true
	}
	status, ok := err.(apierrors.APIStatus)
	return ok && status.Status().Code == 403
}

// permission returns what the service account may do, for the status.
func (c *Controller) permission() health.Permission {
	s, d := c.shared.Access.State(), c.config.Definition
	return health.Permission{
		Account: s.Account, Controller: strings.ToLower(d.Kind) + "/" + d.Meta.Name, Known: s.Known, Problem: s.Problem, Held: s.Held,
		NotFound: s.NotFound, NotImpersonated: s.NotImpersonated, Lacks: s.Lacks(),
	}
}
