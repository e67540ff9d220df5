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

// Package cluster gives tests a real Kubernetes control plane, by running the program of module test/controlplane. It builds that, unless the
// environment variable METACONTROLLER_PROGRAMS names the folder where make has built it.
//
// A package's tests share one control plane: call Main from TestMain and Shared in the tests. A test that breaks its
// control plane starts one of its own with Start. The control plane ends with the test process, however that ends.
//
// It also has what tests of every kind do with a control plane: Namespace and Define make what they need there, NewClients
// reaches it, Objects reads and writes the objects of a namespace and waits for them, and Eventually waits for anything else.
package cluster
