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

// Package worker syncs the parents of one controller.
//
// A Pool takes keys of parents from a workqueue, holds each back until it is ready (until the caches show what its previous
// sync wrote), syncs it, and decides by the error when to try again: errors are taken apart, so that a conflict or a
// Retry-After never hides a failure beside it. The pool keeps the metrics of its controller and its queue.
//
// It is the same for composites and decorators. It knows nothing of hooks' responses or children: what a sync does is a
// function that it is given.
package worker
