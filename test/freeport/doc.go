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

// Package freeport finds ports for programs of tests that are told where to listen.
//
// A port is below those that kernels give to outgoing connections, and to listeners that ask for any port (32768 and above on Linux, 49152
// and above elsewhere): between the finding and the use, or while a test has nobody listen there on purpose, none of those takes it. It is
// not among the ports of control planes either.
package freeport
