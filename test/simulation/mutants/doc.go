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

// Command mutants shows that the simulation sees faults of the engine: it puts small faults into the engine, one at a time, and counts
// the histories until an invariant is violated.
//
// The faults stand in mutants.yaml, each as a text of a file of the engine and what it becomes. All of them are woven into one build: a
// function with a fault calls a copy of itself that has it when that is switched on. The build uses the overlay of the go command, so
// that the tree stays as it is. A violation counts if the same history violates nothing without the fault. `make simulate-mutants` runs
// the command; the tests check that each fault fits the engine as it is.
package main
