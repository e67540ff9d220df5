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
// A rollout goes in three steps, for each sync anew and from nothing but what is observed. Planner.Revisions compares the
// parent with the ControllerRevisions that it has, and says which parents the hook is to be shown: the parent as it is,
// and for each older revision the parent as it was then. The caller asks the hook once for each. Planner.Plan decides from
// the responses which revision's version of each child is desired now, which ControllerRevisions are to be written before any
// child is touched, and what the parent's condition Updated says.
//
// The composite controller calls it. The package is pure: it has no client and no clock, it calls no hook, and it modifies
// nothing that it is given.
//
// It differs from Metacontroller 4.17.2 on purpose: rollouts finish, for namespaced and cluster-scoped parents; the
// revisions of cluster-scoped parents live in the server's own namespace; a revision belongs to its parent by owner and by
// two labels, whatever the parent's selector says; names of children that are gone are dropped; and the condition Updated
// is always current.
package rollout
