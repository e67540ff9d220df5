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

// Package owned tells what of an object a field manager owns, from the FieldsV1 that the API server records in
// metadata.managedFields for server-side apply.
//
// It is what server-side apply is compared by (docs/reference/contract.md#s13, docs/reference/compatibility.md#d13): what a controller applied last, as the API server
// understood it, is exactly what its manager owns. Pure: it imports no client and keeps nothing.
package owned
