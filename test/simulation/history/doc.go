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

// Package history makes, runs, shrinks and prints histories: what users, administrators, hooks, faults and time do to a cluster in which
// the engine runs.
//
// A History is data. Generate makes one from a seed, Run lets it happen in a world and checks the invariants, Shrink makes a smaller one
// that violates the same invariant, and Table prints it. Histories that once failed are kept under testdata and run with the tests.
package history
