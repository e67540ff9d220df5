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

// Package server starts the server's binary for tests, against a cluster of package test/cluster or any other.
//
// Start runs it as an operator would: the binary with --kubeconfig, --data-dir and --secure-port, then its register
// command. Kill, Stop and Restart do to it what happens to servers. When a test fails, the end of the server's log is part
// of the test's output. A server under test checks its own plans (METACONTROLLER_VERIFY), and a test fails if the log tells of a
// data race, of a panic, or of an error that nothing but an ordinary deletion or end has caused.
//
// The binary is that of `make build-race`, or the one that the environment variable METACONTROLLER_APISERVER names.
package server
