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
// are called when metrics are scraped. They are shown from [Controller.Expose] on, and are gone with the controller.
//
// The values of all labels are bounded. Most are the kind or the name of a controller, or one of a list: that of the family here, or for method
// and event that of package webhook. Three are bounded by others:
//   - url, by the definitions: one for each hook of a controller, without user and query, and gone with the hook's last client;
//   - code, by HTTP: a status has three digits. A hook that returns one after the other has so many series;
//   - resource, by the cluster: what it serves, and controllers or the rules of customize hooks name. It is gone with its last informer.
//
// The package imports nothing of the engine, so that all of it may import this package.
package metrics
