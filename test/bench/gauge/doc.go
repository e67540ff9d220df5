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

// Package gauge reads what processes have used and how many requests were made.
//
// [CPU] and [RSS] read a process's usage from /proc. [Fetch] reads a page; [Sum] adds up one metric of one in Prometheus' text
// format, and [Requests] and [Methods] are such sums over the request counters of an API server and of a client. A [Tally] counts
// the requests of the one who measures, so that they can be subtracted. The bench uses it; it starts nothing.
package gauge
