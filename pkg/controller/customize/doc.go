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

// Package customize finds the related objects of parents, and the parents of related objects.
//
// It asks the customize hook when a parent is synced, never in an event handler, and keeps the response until the parent, the
// controller or a kind that its rules name changes. What the rules mean and how they are indexed is package related's, which is
// pure; this package joins it with hooks and informers.
package customize
