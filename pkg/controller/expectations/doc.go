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

// Package expectations gives a controller read-your-writes on top of its informers: a parent is not reconciled before the
// informers have shown what its previous sync wrote.
//
// A sync that started earlier would decide on the past: it would create children that exist, and its hook would be called
// once for every event of its own writes. Each controller has its own Expectations and waits for its own writes only; the
// wait is bounded by Limit, since an event may never arrive, for example when the object no longer matches an informer's
// selector. Informers are those that a controller uses, whose progress its Expectations observe, for as long as something needs them.
// Registry sums up how stale the informers of all controllers are. OwnWrites tells the events that a controller's
// own writes of a parent cause from those of other clients.
//
// The Registry remembers the latest writes of all controllers with the parents that led to each, so that a parent can tell an answer to its own
// writes from an input (docs/design/0020-loops-and-fights.md).
package expectations
