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

// Package workqueue holds the keys of the parents that one controller has to sync.
//
// Queue keeps every key at most once, hands it to one worker at a time, and knows five priorities: a parent that was begun
// goes before a change, a change before a retry, a retry before a sync that the controller's own writes triggered, and that before a
// periodic resync, so that a change never waits behind a resync of thousands of parents. Now and then a less urgent key is taken first,
// so that none waits for ever. Keys can be delayed: by exponential backoff after a failure, by a pause
// that a newer change ends, or until a fixed time which nothing cancels (resyncAfterSeconds). A key can be held until it is
// released.
//
// Workers call Get, then Forget or Fail, then Done; event handlers call Add. The package knows nothing of parents,
// hooks and API objects, and never runs work itself.
package workqueue
