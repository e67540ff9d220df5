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

// Package worker runs the work of one hosted controller: it takes keys of parents from a queue, holds each back until the
// cache shows what its previous sync wrote, syncs it, and decides when to try again.
//
// It is the same for composites and decorators. It knows nothing of hooks' responses or children: what a sync does is a
// function that it is given, and an error tells by its type how it is retried and counted (see Failure).
package worker
