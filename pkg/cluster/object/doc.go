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

// Package object holds the compact form in which the engine keeps API objects.
//
// An Object is the object's JSON, as the API server sent it but without managedFields, beside the few pieces of metadata
// that the engine asks for all the time. The JSON is what hooks are sent; it is decoded whole only for an object that may
// have to change. Codec lets client-go's REST client list and watch in this form.
//
// Package cache keeps these objects, packages under controller and children read them. This package makes no requests.
package object
