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

// Package hostile runs fifty controllers whose hooks do what hooks must not do, beside one whose hook is as it should be, with the server's
// binary on a real control plane: the healthy one goes on, each of the others says what is wrong with it, nothing that the server writes
// shows the credentials that its hooks were sent, and no request reaches a place where no hook may be.
package hostile
