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

// Package fleet runs a CompositeController with many parents, for faults to happen to.
//
// New makes the controller with a hook of its own: each parent wants some ConfigMaps with the parent's value, and none any more when it is
// finalized. A test creates, changes and deletes parents while something breaks, and Converge waits until all is as the parents want
// it, and fails the test when a child was made again, is left over or is missing. The Hook counts its calls, and can be down.
package fleet
