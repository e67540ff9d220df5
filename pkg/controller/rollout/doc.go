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

// Package rollout plans rolling updates of the children of a composite's parent (docs/reference/contract.md#s14).
//
// Each sync of a parent has three steps, which start from the observed objects alone. Planner.Revisions compares the parent with
// its ControllerRevisions and returns the parents for which the hook is called: the parent as it is, and for each older
// revision the parent as it was then. The caller calls the hook once for each. From the responses, Planner.Plan decides which
// revision's version of each child is desired now, which ControllerRevisions are written before any child, and what the
// parent's condition Updated says.
//
// The composite controller calls it. The package is pure: it has no client and no clock, it calls no hook, and it modifies
// nothing that it is given.
//
// It differs from Metacontroller 4.17.2 on purpose (docs/reference/compatibility.md#d14). Beyond what is said there, a revision
// belongs to its parent by owner reference and by two labels, and the parent's selector does not matter.
package rollout
