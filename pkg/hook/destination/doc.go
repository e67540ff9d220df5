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

// Package destination decides where hooks may be, and makes the connections to them.
//
// Whoever writes a controller, or answers as its hook, names an address that this server then calls from its own place in the
// network. A [Policy] keeps these calls from what only this server reaches: addresses are checked after names are resolved, at the
// moment of the connection, so that no name can lead anywhere else afterwards. Package webhook uses it for every connection; a
// refusal is a [RefusedError]. The package knows nothing of HTTP and of controllers.
package destination
