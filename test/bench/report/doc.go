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

// Package report turns what the bench has measured into tables.
//
// A [Result] is one workload of one run, of the server or of a peer; [Read] and [Append] keep results as JSON lines. [Table] and
// [Targets] have the medians of all runs of the server, [Peers] puts those of its peers beside them, and [Comparison] compares two
// versions of it. The bench uses it; it measures nothing.
package report
