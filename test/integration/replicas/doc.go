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

// Package replicas checks servers of which one runs the controllers: two replicas over one store, and two servers with a store each. One ends
// in order, is killed, or stands still for longer than its Lease lasts and goes on; the audit log of the kube-apiserver shows who wrote what,
// since each replica acts as a user of its own.
//
// With FAULTS_LONG=1 replicas stand still for a minute, and there are ten times as many parents.
package replicas
