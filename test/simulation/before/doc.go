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

// Package before has what the simulation needs of former commits to run against the engine as it was there: a patch for each, named after
// its commit, which hack/simulate-before.sh applies to a working tree of the commit. A patch adds ways in (who carries hook calls, who
// draws the jitter of back-offs) and names that the simulation knows, and mends nothing.
//
// 6a24bce is the last commit before the engine was rebuilt. What is known to be wrong there, and what the simulation says of it, with the
// first history that found it, is kept under test/simulation/history/testdata as before-*.json.
package before
