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

// Package explainloop is the command that explains why a parent does not come to rest: which fields are changed back and forth, and by whom.
//
// loops.go finds these fields in the recent syncs of a parent, which the server remembers; report.go says who owns them by the managedFields
// of the objects as they are, and what to do; both are pure. command.go reads syncs and objects.
package explainloop
