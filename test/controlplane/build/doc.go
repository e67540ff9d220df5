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

// Package build makes the programs of the control plane from source, once, and keeps them in the user's cache.
//
// Programs builds what is missing; Folder tells where the results are. The folder's name depends on everything that the
// results depend on, so checkouts of the same versions share it and a change of versions never meets old programs. It
// starts none of the programs.
package build
