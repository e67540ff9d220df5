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

// Package table turns objects into the rows that kubectl get prints.
//
// A Convertor is a list of columns and a function that fills them from one object. OfControllers makes that of a kind of controllers, which
// adds its own columns to those of both; other kinds declare theirs. The registry's stores call it.
package table
