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

// Package validation holds the rules about objects of the group that join several fields or look inside of one.
//
// The shape of objects (required fields, enumerations, ranges) is checked by the validation that is generated from the
// markers in v1alpha1; what is checked there is not checked here. A rule refuses only what could never work or what the
// project has decided to refuse. Everything else that Metacontroller admitted is admitted, with a warning where it has no
// effect, keeps the controller from running, or is dangerous. docs/reference/compatibility.md lists both. No value that may hold a
// password is repeated. The registry's strategies call this package; it reads nothing but the object given.
//
// testdata has objects with what is said to each: accepted, warned of, refused.
package validation
