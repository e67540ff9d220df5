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

// Package leaderelection elects one process of several: the one that holds a Lease of the cluster, by client-go's leader election.
//
// An Elector is a candidate. What it adds to client-go's is: a candidate watches the Lease, so that it takes a released one at once and an
// expired one at its time; a term ends by the clock of the leader, before another candidate may take the Lease, even if the process was
// stopped meanwhile; the Lease is released when all has ended that ran under it; and a Fence refuses the writes of a process that does
// not lead.
//
// cmd/metacontroller-apiserver/app makes the Elector and runs the engine under it. This package knows neither half of the server.
package leaderelection
