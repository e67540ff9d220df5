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

// Package transfer has the subcommands export and import, which write controllers and ControllerRevisions to a file and create them from
// one. Both take them from whoever serves the API group: this server, or the CustomResourceDefinitions of Metacontroller. So they are how
// objects move from one to the other, and between stores.
package transfer
