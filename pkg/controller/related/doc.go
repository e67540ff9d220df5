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

// Package related finds the related objects of a parent, and the parents to which a changed object is related, by the rules
// that customize hooks return (docs/reference/contract.md#s16).
//
// A Customizer calls the customize hook when a parent is synced, never in an event handler, and keeps the response until the parent,
// the controller or a kind that its rules name changes. Compile validates the rules of a response for the parent's
// scope and resolves their types; Select finds their objects in informers for one parent; Index, the inverse, finds the parents whose
// rules select an object that changed. Selectors are those by which parents of CompositeControllers select children; they find the parents of an
// orphan in the same way.
package related
