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

// Package localhook calls an author's hook on his own machine, and starts it if he wants: Hook makes the calls, Process is the hook's
// program, Watch tells when files of its folder change, Edits which of these its author changed, and Flags.Run does something with the hook once or
// after each change. The commands try, record and replay use it, and `make run` uses Watch and Edits. It knows nothing of the cluster.
package localhook
