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

// Package recording has the commands record and replay: requests of hooks with their responses, as files in a folder, and a comparison of
// what a hook on the author's machine returns with them. The files are those of init, and of the replay in the modules for hooks
// (artifacts/sdk): HOOK-TEXT.request.json, and HOOK-TEXT.response.json beside it.
package recording
