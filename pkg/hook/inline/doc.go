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

// Package inline runs hooks that are written in the controller object, as templates with expressions in CEL.
//
// [Compile] checks the inline hooks of a controller against the schemas of its parents, children and related kinds, and returns a
// [Program] for each. [Program.Call] evaluates one for a request, and returns the body that a webhook would have returned.
//
// A string that is one ${…} yields the value of the expression with its type. Text around expressions is joined, and $${ stands for
// ${. An optional without a value leaves its field or element out. Values of the request are those of its JSON, whether a schema is
// known or not: a schema makes expressions be refused, and never changes what they yield. docs/design/0024-inline-hooks.md has the reasons.
//
// A program is safe for concurrent use. The same request gives the same response: there is no clock and no randomness, and maps are
// walked in the order of their keys. What a definition may cost is bounded when it is compiled and when it runs (limits.go).
//
// The package has no client. It knows schemas by the interface [Schemas], and requests as package wire has them.
package inline
