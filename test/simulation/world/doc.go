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

// Package world runs one or two engines, as they are built into the server, against an in-memory API server in a bubble of
// testing/synctest, and decides what happens next: which request arrives, which response and which event of a watch is delivered,
// which hook responds, when time passes, when an engine dies. What it decides comes from a seed, or from its caller.
//
// A [World] is made in a bubble, whose goroutine is the scheduler. Each request of an engine waits in its transport until
// [World.Release] lets it arrive, and its response waits until a second release delivers it; so does each event of each watch, and each
// call of a hook. Whenever the scheduler decides, all goroutines of the engines have come to a stand. Time passes when the scheduler lets
// it: a millisecond with each release, or with [World.Advance] and [World.Idle].
//
// What is pending is sorted by what it is, not by when it came, so that the order in which Go runs goroutines does not matter to the
// choice. It matters to what the engine does within one decision, together with the order of maps, the choices of select and of timers
// that are due at once. With GOMAXPROCS=1 and the runtime that hack/repeatable-runtime prepares, nothing of that differs between two runs
// of a seed, in one process or in several; without them a few in a hundred runs differ.
//
// Transport, clock, randomness and hooks are all that is replaced; the options of the engine have a transport and a source of random
// numbers for that. Worlds follow each other in one process without traces of each other.
package world
