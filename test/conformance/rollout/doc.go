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

// Package rollout holds the tests of rolling updates (docs/reference/contract.md#s14, docs/reference/contract.md#s22 line 14) against a real control plane, with the
// server's binary and a hook that is a real HTTP server.
//
// The children are of a kind that only the tests touch, so that a test decides which of them becomes Ready. What order they
// were changed in, and how many were in work at a time, is read off a watch.
package rollout
