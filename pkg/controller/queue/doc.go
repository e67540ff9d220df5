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

// Package queue holds the keys of the parents that one controller has to sync, and syncs them.
//
// A Queue keeps every key at most once and gives it to one worker at a time. It knows four priorities: a change goes before a retry, a retry
// before a sync that the controller's own writes triggered, and that before a periodic resync, so that a change never waits behind a resync of
// thousands of parents. Now and then a less urgent key is taken first, so that none waits for ever. Keys can be delayed: by exponential back-off
// after a failure, by a pause that a newer change ends, or until a fixed time which nothing cancels (resyncAfterSeconds).
//
// A worker holds each key back until it is ready (until the caches show what its previous sync wrote), syncs it, and decides by the error when
// to try again: errors are taken apart, so that a conflict or a Retry-After never hides a failure beside it.
//
// All that is known of a key is one item, which exists as long as there is something to know, under the one lock of the queue. It is the same
// for composites and decorators, and knows nothing of hooks' responses or children: what a sync does is a function that it is given.
package queue
