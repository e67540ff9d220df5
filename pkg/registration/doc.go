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

// Package registration tells a cluster that a server outside of it serves the API group metacontroller.k8s.io.
//
// Register applies the manifests of package artifacts, with the Service turned into a name for the server's host, and waits
// until the cluster reaches the server. ApplyRoles applies their roles alone. Unregister takes that back. Trust
// puts the authorities of the serving certificates of a server that runs into its registration.
// A server inside of the cluster registers itself with Self. Inspect says what a cluster has for the group, and Rules what is in the
// roles. All write as the field manager FieldManager, by
// server-side apply, and leave alone what others have made or changed: the namespace, and the rules of ClusterRoles.
//
// TakeOver and GiveBack switch the group between CustomResourceDefinitions and a server, each by one update, for package migration, which has moved the
// objects before.
//
// The commands register and unregister call it. It never starts a server, makes no certificates, and does not move objects
// from CustomResourceDefinitions: where these serve the group, Register refuses.
package registration
