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

// Package inspect serves the subresources of both kinds of controllers that say what their controllers do: parents, request, plan,
// resync, rollback and syncs.
//
// A file has one of them. What they have in common is in subresource.go: finding the running controller by package inspection, of which
// the engine implements the interface, and bounding how many requests are answered at the same time. selection.go asks the cluster what the
// caller may see and do, and selects and pages parents. forecast.go sums plans up in warnings for those who write controllers. Nothing here is stored, and nothing but a rollback writes to the cluster.
package inspect
