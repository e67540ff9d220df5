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

// Package credentials reads the Secrets and ConfigMaps that hooks refer to, and keeps what it read up to date.
//
// Each is watched by its name alone: the server needs to see, and keeps in memory, no other Secret of the cluster
// (docs/reference/compatibility.md#d2.3). A watch starts with the first use of a name and ends when the name was not used for a while.
package credentials
