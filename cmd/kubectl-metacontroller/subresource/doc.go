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

// Package subresource asks the subresources of a controller, by the generated client: parents, request, plan and resync. It reads which
// parents a command is about from its arguments and flags, gets all pages, and says what to try next when the server does not answer.
// It prints nothing and decides nothing; the commands plan, parents, resync, try and record call it.
package subresource
