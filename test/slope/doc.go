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

// Package slope checks how the cost of work grows with its size, in tests and in benchmarks.
//
// A cost is time of the processor that the work itself uses, on one goroutine, so that other work on the machine does not change it. It is
// never compared with seconds, but with that of the same work of another size in the same run. Where requests, calls or looks at objects can
// be counted, a test counts those and does without this package.
package slope
