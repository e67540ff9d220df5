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

// Package wire is the engine's side of the hook protocol: it builds request bodies and reads responses (docs/reference/contract.md#s9, docs/reference/contract.md#s10).
//
// [Composite], [Decorator] and [Customize] build a body by joining JSON that exists already: the controller is encoded
// once with [EncodeComposite] or [EncodeDecorator], and every other object brings its bytes. Keys are sorted, so that equal
// input gives equal bytes. [DecodeComposite], [DecodeDecorator] and [DecodeCustomize] validate the form of a response, and
// return a [hook.RejectedError] that names the place and the violation when it cannot be used.
//
// The composite and decorator controllers call it before and after package webhook. It knows the form of the protocol
// only: whether a child may exist is decided by package children. It makes no calls, and no input makes it panic.
package wire
