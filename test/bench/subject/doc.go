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

// Package subject runs what the bench measures: the server, or Metacontroller itself as its peer.
//
// A [Subject] is started and stopped again and again on the [Cluster] of one control plane, which it has to itself: an APIService and
// CustomResourceDefinitions cannot serve the same API group. [NewServer] returns the server, which registers itself each time, and
// [NewPeer] Metacontroller, whose CustomResourceDefinitions are applied once. What is measured of them is the bench's affair.
package subject
