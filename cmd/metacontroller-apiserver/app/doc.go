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

// Package app is the command of the server: flags, wiring, running, and the end.
//
// It is the only place that knows both halves: the API server that stores controllers and the engine that runs them. Run
// starts the embedded etcd if there is one, builds the server, ties the engine to the server's life, serves, and takes all of
// it down in the reverse order.
package app
