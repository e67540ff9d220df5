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

// Package simulation runs the whole engine against an in-memory API server on virtual time, through random histories with faults,
// and checks after each what must always be true. docs/reliability.md says what is simulated and what is not.
//
// Its parts: package apiserver is the API server, package truth compares it with a real one, package world lets one or two engines run
// against it and decides what happens next, package history makes the histories, runs, shrinks and prints them, and package
// invariant says what must be true.
package simulation
