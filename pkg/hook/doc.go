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

// Package hook is the JSON protocol between the server and the webhooks that it calls, as Go types.
//
// A webhook gets a request in the body of an HTTP POST and returns a response in the body of a 200. There are three
// kinds of hooks: sync and finalize, which share their bodies, and customize. A CompositeController's bodies are
// [CompositeRequest] and [CompositeResponse], a DecoratorController's are [DecoratorRequest] and [DecoratorResponse], and
// both share [CustomizeRequest] and [CustomizeResponse]. Versions v1 and v2 of the protocol have the same fields; they
// differ in the keys of [ObjectMap], in which related objects are shown, and in how strictly a response is read.
//
// Authors of webhooks in Go import this package and decode and encode with encoding/json. Authors in other languages find
// the same as JSON Schema and OpenAPI under docs/reference/hook-schema, generated from these types. The server itself
// builds requests and reads responses with package wire, which never fills these types: it works on bytes.
//
// The package holds no client and makes no calls.
package hook
