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

// Package escalation is an admission plugin that lets nobody write a controller that may do more than its author: a controller
// acts with the rights of the server, and does what its hooks say.
//
// It takes what the engine will do from package rights, and asks the cluster, with SubjectAccessReviews in the name of the author,
// whether the author may do all of it, or has the verb escalate on the controller. Of a controller with a service account, which acts
// with that account's rights, the author must be able to impersonate the account.
// The same holds for ControllerRevisions, which show hooks another parent than the one that is stored: their author must be able
// to update such parents.
//
// The server's own requests and those of the group system:masters are not checked, and neither are updates that change nothing
// which the rights depend on. If the cluster cannot be asked, the write is refused.
package escalation
