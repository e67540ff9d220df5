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

// Package children validates the children, or attachments, that a hook returns, and decides which existing objects are a parent's.
//
// A response is accepted or rejected as a whole: Validate returns every child with its namespace and labels completed, or an
// error that names the child, the rule that it violates and what to do. Parent.Decide says whether an object is claimed, adopted or
// released, by its owner and labels (docs/reference/contract.md#s8). What is then done with children is worked out by packages merge and
// plan, which are pure as this one is, and done by package apply, the only one with a client.
package children
