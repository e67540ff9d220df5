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

// Package accounts checks controllers that act as service accounts, of a server that has no right to write: what they write is written
// by the account, as the audit log of the kube-apiserver shows; what hooks are shown is what the account may read; and rights that are
// taken away and given back are seen, said and used.
package accounts
