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

// Package hooktest is for tests of hooks: a scripted webhook, which is a real HTTP server that returns what a test says and records the
// requests, and trials of an author's own hook.
//
// [NewServer] starts a [Server], and [Server.Handle] puts a handler at a path. There are handlers that return good responses
// ([Composite], [Decorator], [Customize], [JSON], [Tagged]), handlers that return errors ([Status], [RetryLater]), and all kinds of
// hostile ones ([Hostile]): null, wrong types, endless bodies, broken connections. Options give it TLS, with certificates that
// are good, expired, or for another host, and make it demand client certificates.
//
// A [Trial] needs no server: it plays random histories to the hooks of a controller, in a model of a cluster in memory, and checks
// what holds for every well-behaved hook.
//
// The tests of the server use it, and authors of hooks in Go can use its recorder and certificates for theirs. It is for
// tests only: it fails the test when it cannot start, and stops with it.
package hooktest
