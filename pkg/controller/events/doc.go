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

// Package events records Kubernetes Events on parents and on controller objects.
//
// Every kind of message about an object, which is its type, its reason and its text without numbers, has a limit of its own:
// an error that is repeated for hours does not keep another one from being seen (docs/reference/contract.md#s18.4). Endless
// different messages about one object have a limit in common. Normal events, of which every created child would be one, share
// a budget for the whole process besides: they serve a person who watches a few objects, and must not cost a fleet of
// thousands a request each (docs/design). Events that are not recorded are counted by reason.
//
// Equal events are one with a count, and many of one reason are combined, by client-go's correlator.
package events
