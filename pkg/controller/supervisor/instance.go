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
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
)

// An Instance is a controller built from one definition. All methods may be called while Run runs, and before.
type Instance interface {
	// Run reconciles until ctx ends, and returns when everything that it started has ended.
	Run(ctx context.Context)
	// Started is closed when the caches are filled and parents are being reconciled.
	Started() <-chan struct{}
	// Problem says why the instance cannot list or watch its objects, nil if it can.
	Problem() error
	// Missing returns the declared resources that the cluster does not serve and that the instance does without, for example
	// "foos.example.com/v1".
	Missing() []string
	// Redefine gives the instance a definition with the same spec and other metadata.
	Redefine(d definition.Definition) error
	// Counters returns what the instance did so far.
	Counters() *v1alpha1.ControllerCounters
}

// A Builder builds instances.
type Builder interface {
	// Build resolves everything that the definition names; the instance is not running yet. The status of d says for which
	// resources finalizers are recorded. A *discovery.NotFoundError says that the definition needs a resource that is not
	// served, a *definition.InvalidError that it cannot run before it is changed.
	Build(ctx context.Context, d definition.Definition) (Instance, error)
	// Fingerprint returns what Build learns from the cluster about each resource that the definition names, parents first. A
	// text changes when the resource appears, disappears or gets another scope; it is empty if the cluster does not say now.
	Fingerprint(ctx context.Context, d definition.Definition) []string
}

// changed reports whether the cluster says something else about a resource than before. What it does not say now stays as
// it was.
func changed(before, now []string) bool {
	for i, text := range now {
		if text != "" && (i >= len(before) || text != before[i]) {
			return true
		}
	}
	return false
}
