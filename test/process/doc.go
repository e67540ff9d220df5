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

// Package process runs programs that end with the one who started them.
//
// Start runs one in the background, in a process group of its own, with its output in a file; Stop and Kill end it together
// with whatever it started. Output runs a short one to its end, and Poll one again and again. Built says where those are that make has built. The demonstration
// and the tests that start the server use it. It knows nothing about what the programs are.
package process
