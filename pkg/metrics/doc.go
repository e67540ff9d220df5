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

// Package metrics declares every metric of the engine once and holds its series.
//
// The series of one controller are a [Controller]: handles that cost an atomic operation to use, and functions that
// are called when metrics are scraped. They are shown from [Controller.Expose] on, and are gone with the controller. All
// labels are bounded: a controller's name, or a value of a list that is in this package.
//
// The package imports nothing of the engine, so that all of it may import this package.
package metrics
