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

// Package ratcheting validates objects, and lets an update keep what was wrong before.
//
// Rules become stricter with time, and what was stored under older ones must not block changes of other fields. So an error of
// an update is dropped if the object had the same error before about an equal value. That holds for the rules written by hand
// and for the generated ones, which skip fields that did not change but check each item of a list in which anything changed.
// The registry's strategies call this package; it knows nothing of any kind.
package ratcheting
