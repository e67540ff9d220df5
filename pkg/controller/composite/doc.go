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

// Package composite runs one CompositeController.
//
// Its files are its ideas: controller.go builds and runs it, events.go says which change wakes which parent, selectors.go
// finds the parents that may adopt an orphan, and sync.go brings one parent to its desired state in phases that the
// other files hold. Which children a response leads to is decided by package children, when a rolling update goes on by
// package rollout; both are pure. What composites share with decorators is in packages loop, parent, hooks and related.
package composite
