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

// Package object keeps an API object in as few bytes as the engine can work with.
//
// An [Object] is the object's JSON as the API server sent it, without managedFields, and the places and values in it that
// the engine needs often: identity, labels, owners, finalizers, timestamps. The rest is decoded when it is needed.
// Objects do not change after [Parse]; any number of goroutines may read one. Strings that an Object returns are parts of
// its JSON, so keeping one keeps the whole object in memory: clone what is to live longer.
//
// [Parse], [ReadList] and [EventReader] read what a server sends for an object, a list and a watch. They check all of the
// JSON in one pass, because the bytes are later spliced unread into requests to hooks. Object and [List] satisfy what
// client-go's reflector asks of runtime.Object.
//
// Packages cache, client and credentials make objects; the engine reads them. This package has no client and does not
// know what the kinds mean.
package object
