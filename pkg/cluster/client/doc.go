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

// Package client reads and writes single objects of any kind on the cluster, as JSON bytes.
//
// The engine keeps objects as bytes and sends bytes, so nothing of a response is decoded but the metadata. By default the client
// sets no limit of its own: the API server's priority and fairness decides (docs/reference/compatibility.md#d19.1). When the API
// server sends Retry-After, that time is returned as a [RetryLaterError] and not waited for. Lists and watches are not made here:
// see package cache.
package client
