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

// Package metacontroller is for hooks of metacontroller.k8s.io in Go: typed requests and responses, a server, and a replay of recorded
// requests. It needs nothing but Go's standard library, and is copied beside a hook by kubectl metacontroller init --lang go.
//
// Objects are maps here, as encoding/json makes them: numbers are float64, which has no integers above 2^53 but every other one. Those who want Kubernetes' own types import pkg/hook of github.com/metacontroller/metacontroller-apiserver.
package metacontroller
