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

// Package decorator is what DecoratorControllers do differently from CompositeControllers.
//
// A target belongs to others: the controller adds labels, annotations, a status and attachments to it by patches that hold what
// changes and nothing else, and never rewrites it. The controller itself is package reconciler's, which calls targets parents and
// attachments children.
package decorator
