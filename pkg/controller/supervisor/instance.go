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

package supervisor

import (
	"context"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// An Instance is a controller built from one definition.
type Instance interface {
	// Run reconciles until ctx ends, and returns when nothing it started goes on.
	Run(ctx context.Context)
	// Started is closed when the caches are filled and parents are being synced.
	Started() <-chan struct{}
	// Problem says what keeps the instance from starting or from seeing its objects, or nil.
	Problem() error
	// Redefine tells the instance that the metadata of its definition changed.
	Redefine(d Definition) error
	// Counters returns what the instance did so far.
	Counters() *v1alpha1.ControllerCounters
}

// A Builder builds instances.
type Builder interface {
	// Build resolves everything that the definition names. The error says what is missing; a definition that cannot work
	// before it is changed yields an InvalidError, a resource that is not served an error for which Missing is true.
	Build(ctx context.Context, d Definition) (Instance, error)
	// Fingerprint returns a text that changes when the cluster's responses, on which Build depends, change: for example
	// when a named kind disappears, or appears with another scope.
	Fingerprint(ctx context.Context, d Definition) string
}

// An InvalidError says that a definition cannot be run before it is changed.
type InvalidError struct {
	// Reason is the plain text for people.
	Reason string
}

// Error implements error.
func (e *InvalidError) Error() string { return e.Reason }
