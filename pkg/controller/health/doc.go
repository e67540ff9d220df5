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

// Package health says how a controller is doing, as conditions of its object.
//
// A State is what a running controller knows of itself: the reconciler fills it, and the supervisor publishes the Conditions that follow
// from it. Conditions is pure: it decides what is true, under which reason, and what people are told to do. When conditions are written
// is the business of package manager.
package health
