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

// Package eventrecorder records Kubernetes Events on parents and on controller objects.
//
// Warnings are passed on as they come, under the limits that client-go's correlator sets for one object (docs/reference/contract.md#s18.4).
// Normal events, of which every created child would be one, share a budget for the whole process: they serve a person who
// watches a few objects, and must not cost a fleet of thousands a request each (docs/design). Whatever is over the budget
// is dropped and counted.
package eventrecorder
