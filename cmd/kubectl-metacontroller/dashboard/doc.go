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

// Package dashboard is the command that serves a page on 127.0.0.1, with the rights of the kubeconfig: controllers, their parents, what syncs did,
// plans and a few actions. It reads what the commands status, parents, syncs, explain-loop, tree and plan read, by their own functions, and turns it
// into HTML. [NewCommand] listens; guard.go decides whom it answers; a view (overview.go, controller.go, parent.go) makes the parts of a page, which
// live.go sends again when they change; action.go writes. It keeps nothing but the secrets of the session, and asks nothing while no page is open.
package dashboard
