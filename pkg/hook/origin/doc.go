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

// Package origin says which addresses belong to the same hook.
//
// An origin is a scheme, a host and a port (RFC 6454). A request to a hook has the parent and all of its children, and what the hook returns
// decides where a redirect leads, so a redirect is followed only where [Keeps] says that it stays with the hook. The server and the plugin of
// kubectl, which calls hooks on an author's machine, follow the same redirects by this. The package is pure.
package origin
