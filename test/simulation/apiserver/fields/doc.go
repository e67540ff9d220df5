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

// Package fields keeps metadata.managedFields: which field manager owns which fields of an object, and what applying an object
// makes of another one (KEP 555). It does what package managedfields of apimachinery does, with the same library for merging, but
// without encoding and decoding the sets of fields with every write, and with the caller's clock.
package fields
