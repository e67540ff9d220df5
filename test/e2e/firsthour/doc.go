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

// Package firsthour plays the mistakes that authors of controllers make first, at a terminal, on a real control plane and with real
// hooks, and holds what kubectl prints to what it must say: the mistake and the next step, without the log of the server.
//
// What was printed is kept in testdata: the test fails when that is stale, and writes it with the flag -update. The table of docs/mistakes.md
// quotes a message of each mistake. The package holds tests only.
package firsthour
