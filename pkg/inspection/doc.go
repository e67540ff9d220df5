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

// Package inspection is what the API server asks of the engine about running controllers, for the subresources parents, request, plan,
// resync, rollback and syncs: the interface that one half calls and the other one implements, with values of the API types only.
//
// What is asked for is looked up or worked out and never written, but for a rollback of a parent. Whether the caller may see or do it is the
// API server's matter: the engine says which objects an answer shows. Package registry/metacontroller/inspect calls Engine, pkg/controller/manager implements it, and
// cmd/metacontroller-apiserver/app joins them by Link.
package inspection
