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

// Package loopguard keeps hooks that do harm from doing much of it: it notices parents that do not settle and says for how long to hold each
// of them back, and it holds deletions that are too many.
//
// # Loops and fights
//
// A parent settles if its syncs come to an end at which nothing is written. It does not if each response of its hook differs from the
// one before although nothing that the hook is shown has changed but by that response, or if another client, perhaps another
// controller, changes back what each sync writes to it. A Tracker is given what each sync that wrote saw and left, as hashes, and
// decides; package reconciler makes the hashes, holds parents back, and reports them. The package has no client, and starts nothing.
//
// What it remembers is dropped by every input that a hook may be shown: the parent, but for what syncs write to it; its children, in
// the versions that the last sync left; and what a State does not show. Related is called for related objects, and Outside for orphans that
// may be adopted, the controller object, and what API servers publish about kinds of children. A child that goes ends a pause, and keeps what was
// counted: syncs may have deleted it themselves.
//
// # Deletions
//
// A DeletionGuard counts deletions of children over a minute. What passes spec.deletionGuard is held, and all further deletions with it,
// until somebody confirms them or nobody wants them any more. It is asked once for each sync that has planned its writes; it writes nothing
// and knows nothing of children but their UIDs. It has no clock: the time is given to it. A new one knows of nothing that was deleted
// before.
package loopguard
