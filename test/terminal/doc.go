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

// Package terminal is a terminal for tests: a Shell runs commands as an author types them, with kubectl and the plugin on PATH, and Play
// runs the commands of a document and compares what they print with what the document says. Suites of documents under test/e2e use it.
// It knows of no document.
package terminal
