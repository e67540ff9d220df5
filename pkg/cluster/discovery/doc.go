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

// Package discovery knows which kinds the cluster serves and what their fields look like.
//
// Group-versions are read when they are first needed, and kept until a CustomResourceDefinition or APIService of their group
// changes, which is watched by metadata alone. Those whose kinds may change without one, the built-in and aggregated ones, are
// read again now and then. When reading fails, the last response stays. Those that are not served are forgotten after a while.
package discovery
