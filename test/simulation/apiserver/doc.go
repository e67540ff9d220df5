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

// Package apiserver is an API server in memory, with the semantics of kube-apiserver that matter to a controller: resourceVersions,
// conditional writes, lists, watches, several served versions, patches with managedFields, defaults, pruning, admission, deletion,
// garbage collection. Package truth runs the same assertions against it and against a real one.
//
// What of a real server it does not have: tables, pages and former revisions of lists, YAML and protobuf in bodies, strategic merge patches of more than
// texts and numbers, the deletion of collections and of namespaces, owners that are named twice, generated names, warnings of deprecated versions,
// the subresources scale and eviction, conversion by webhook, selectable fields but name and namespace, the order of keys in fields that keep their
// bytes, Pods, Secrets, the events of events.k8s.io, and the warnings of the product that know what the cluster serves. A definition is established
// with the request that creates it, and what controllers of the cluster do happens when Collect is called.
//
// It is deterministic: it starts no goroutine, never blocks and takes the time from its options. A request is one call that returns
// when it is done; a watch is a queue that its caller empties.
package apiserver
