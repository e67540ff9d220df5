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

// Package engine runs Metacontroller's controllers inside of another Go program, with Go functions for hooks.
//
// A program describes its controllers as [Composite] and [Decorator]: the spec that a CompositeController or a DecoratorController has, and the
// functions that decide. [New] checks them as the API server does, and [Engine.Run] runs them: informers, rollouts, finalizers, retries and
// events are those of the server. No API group is registered, and nothing of the controllers is stored.
//
// A function gets a copy of what a webhook would be sent, and returns what a webhook would. It may keep and change its request. [Typed] makes a
// hook of a function with Go types for the parent and its status, and [As] a typed object of an observed one.
//
// The package wires pkg/controller and adds what stands in for the API server: objects in memory, and calls of functions. It decides nothing
// about parents and children, and imports nothing of the server half. docs/how-to/in-go.md has the first steps, and
// docs/design/0027-engine-as-a-library.md says why it is as it is.
package engine
