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

// Package childcontrol brings the children of one parent to the state that a hook desires.
//
// CompositeControllers and DecoratorControllers share this path from a validated response to the cluster. It has four steps: gather
// the facts that a plan needs, make the plan, apply it, and commit the next records. Then it records events, and adds what was
// written to the parent's expectations. Which objects are the parent's children is decided before.
package childcontrol
