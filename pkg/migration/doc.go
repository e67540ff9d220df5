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

// Package migration moves controllers and ControllerRevisions from CustomResourceDefinitions to this server, and back, as they are: with their
// UIDs, generations, times, finalizers, owners and statuses.
//
// It has both ends of the move. Door is a part of the API server: an API group of its own, under which the objects of the server's store are
// listed, written and removed as they are, while CustomResourceDefinitions serve the group metacontroller.k8s.io
// (docs/design/0028-moving-objects.md). Forward, Back and Finish are the command migrate: each runs steps, and keeps in a ConfigMap which of
// them are done, so that it can be killed and run again.
//
// Package apiserver serves the door, and cmd/metacontroller-apiserver/app/migrate calls the rest. It runs no controller: which engine runs is
// decided by the Lease of this server, and by the replicas of Metacontroller's workload.
package migration
