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

// Package record keeps one record for every child of every parent of one controller: in which version and for which desired
// state it needed nothing, what the API server returned in place of what it was sent, and how often it was written lately.
//
// Records are values. A plan reads those of its parent, works out the next ones, and Store.Commit puts them in place; nothing
// else writes them. What the API server does to values is known only from comparing what was sent with what came back, in a
// write or a dry run, and for as long as the schemas and what mutates objects are the same (an epoch), some hours at most.
package record
