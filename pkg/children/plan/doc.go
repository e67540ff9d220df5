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

// Package plan works out what has to be done so that the observed children of a parent become the desired ones.
//
// A Plan is a value: steps with their reasons, and the bodies to be sent. Making one has no side effect: everything that it depends
// on, the time among it, is in its Input, and Missing says what an Input lacks. Package apply carries a plan out. What was learned
// from that, such as what the API server stored of what was sent, is then committed as the children's next records (package record).
package plan
