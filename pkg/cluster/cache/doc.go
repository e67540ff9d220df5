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

// Package cache keeps the objects of the cluster that the engine watches: one informer for each resource, shared by
// all controllers that need it, with the objects in compact form and the indexes that the engine needs.
//
// client-go's reflector lists and watches. Its events go into the store of the informer, and then, on the same goroutine, to the
// subscribers, which only compute keys; there is no second queue. A panic is an error of the informer, which starts again. Nothing
// is written to the cluster.
package cache
