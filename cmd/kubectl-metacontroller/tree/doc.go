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

// Package tree is the command that prints an object with what it owns: its children, their children, and so on, with their readiness,
// field managers and revisions. Which kinds may be children is taken from the controllers and from what Kubernetes' own controllers
// create (kinds.go); objects are listed kind by kind, within bounds (collect.go), and printed (print.go).
package tree
