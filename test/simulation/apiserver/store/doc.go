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

// Package store keeps objects in memory with their history, as etcd and the watch cache of kube-apiserver do: one counter of
// revisions for all, lists of the present, watches that begin at a revision, and a history that can be
// forgotten. It knows nothing of versions, schemas and HTTP.
package store
