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

// Package plane runs one control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and
// kwok with one simulated node.
//
// Start starts a Plane in a Folder, under which everything is that it writes; Info tells how to use it; Died, when one of
// its programs has ended by itself. The command calls it. It builds nothing, see package build.
package plane
