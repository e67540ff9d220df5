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

// Package program builds the programs of the product for a platform, with the version in them and the licenses of all that is in them.
//
// The same commit and the same version of Go give the same bytes, wherever and whenever it runs: no path, time, user or environment of
// the machine gets into a program. It uses the go command, and nothing of the product.
package program
