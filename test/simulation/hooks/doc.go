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

// Package hooks has what a simulation is about: the custom kinds of its parents and children, as CustomResourceDefinitions in several
// states, and the hooks of its controllers, as functions of their request alone.
//
// What a parent wants is in its own spec (Wish), and which kinds its children may have is in the controller that every request carries.
// So a hook's response can be computed again from a request, by whoever checks what the engine made of it.
package hooks
