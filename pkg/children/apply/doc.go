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

// Package apply carries out what package plan worked out: deletes first, then creates and updates side by side. It also has the API
// server say what it would make of children, when a plan needs to know.
//
// It is the only package about children that talks to the cluster. It decides nothing: it reports what happened, and the
// caller records it, waits for the cache and retries. A panic while a child is written is an error of that child.
package apply
