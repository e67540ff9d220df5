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

// Package deferredstatus keeps the statuses that syncs made and that are not written yet, because the next sync of the same parent
// is on its way and makes them anew.
//
// A sync that wrote children is followed by one that sees them, which nearly always returns another status. The first of the two is
// deferred: for Limit at most after the first status was, however many follow. Store knows what is deferred and until when;
// reconciler decides what may be, and writes it. Until then the hook is shown the parent as if the status had been written. Run
// has written what no sync came for in time: it takes the key of the parent, so that no worker has it meanwhile.
package deferredstatus
