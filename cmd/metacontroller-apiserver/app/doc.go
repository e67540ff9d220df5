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

// Package app is the command of the server: flags, wiring, run and shutdown.
//
// It is the only package that knows both halves: the API server that stores controllers and the engine that runs them. Run
// starts the embedded etcd if there is one, builds the API server, adds the engine to it, and serves.
//
// With --api=definitions there is the engine alone, on CustomResourceDefinitions of the cluster (definitions.go).
//
// What renews the serving certificate, and what keeps the server registered, ends at once when the context ends or a part fails, and is waited for
// before the embedded etcd closes. The order of shutdown of the rest:
//
//  1. The engine stops (engineRunner.shutdown, before the API server stops to serve): its controllers take no more work, and
//     syncs under way end, by themselves within queue.Grace or canceled after it. Then the Lease is released, if this process was
//     elected to run controllers. Both are waited for engineGrace at most.
//  2. The API server sends Retry-After to new requests, ends watches and drains what is left.
//  3. The embedded etcd closes. When it ends first, the API server gets lostStorageGrace, because no request can succeed.
package app
