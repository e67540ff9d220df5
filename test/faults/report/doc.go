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

// Package report is what tests of faults have in common: whether they run in their long form, and where their figures go.
//
// A test asks Pick or Long how much it does: the short form is a part of `make test`, the long one of `make faults`, which sets
// FAULTS_LONG=1. It says what it has measured with Figures, for one of the rows of the table in test/faults/measured.md; the figures are
// appended as lines of JSON to the file that FAULTS_REPORT names, and Write makes the table of them. hack/fault-table is its caller.
package report
