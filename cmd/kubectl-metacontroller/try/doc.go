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

// Package try is the command try: what would the hook on the author's machine do to the parents of a controller, if it were deployed? The
// requests come from the server, the responses from the hook (package localhook), and the server works out what would be done with them,
// which package plan prints. Nothing in the cluster changes.
package try
