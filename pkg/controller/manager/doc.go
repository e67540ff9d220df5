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

// Package manager decides which controllers run: it watches the CompositeControllers and DecoratorControllers through
// the API server's loopback client and keeps one Supervisor running for each that the target label selector selects. The status
// of the others says that they are not selected.
//
// A Supervisor takes the latest definition, builds an Instance from it, runs it, replaces it when the spec changes, and waits
// while the cluster does not serve what the definition needs. Beside the running instance it takes the controller's finalizer
// off the objects that the definition does not finalize any more
// (docs/design/0014-finalizers-level-triggered.md). What it does is published in the object's status. How an instance works
// is the business of package reconciler.
//
// The manager owns the access to the cluster (package cluster) that all controllers share. It does not use the aggregation
// layer: reconciling continues while the APIService is unavailable.
package manager
