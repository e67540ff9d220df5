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

// Package decorator runs one DecoratorController.
//
// Its files are its ideas: controller.go builds and runs it, rule.go says which objects are targets, events.go which change
// wakes which target, sync.go brings one target to its desired state in phases, and target.go writes the target itself, by
// patches that hold what changes and nothing else. A target belongs to somebody else: the controller adds labels,
// annotations, a status and attachments to it, and never rewrites it. What decorators share with composites is in packages
// loop, parent, hooks, customize and converge.
package decorator
