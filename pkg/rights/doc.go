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

// Package rights says which rights a controller uses: which verbs on which resources, derived from its definition alone. It is pure,
// and the one place that knows it. The admission plugin that lets nobody give controllers more than he has, the engine's reviews of
// what service accounts may do, and the subcommand rbac read it.
//
// Needs are the rights of a definition, from OfComposite or OfDecorator; Right is one of them, and Account is who may have it.
package rights
