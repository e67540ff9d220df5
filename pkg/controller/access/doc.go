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

// Package access knows what the service account of one controller may do.
//
// The caches are filled with the rights of the server and shared by all controllers. Access stands between them and the hooks of one
// controller: it reviews, at the start and again and again, whether the controller's account may list and watch what the hooks would be
// shown, and the controller is held while it may not. It also takes note of the writes that were refused, until they are allowed or not
// tried any more. What is missing is the State, from which the condition Permitted is made.
//
// Access decides nothing about single objects and makes no request itself: Cluster does, which OfCluster makes. A controller without a
// service account has a nil Access, which permits everything.
package access
