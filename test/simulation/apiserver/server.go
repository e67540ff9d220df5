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

package apiserver

import "time"

// Options configure a server.
type Options struct {
	// Now is the clock. Required.
	Now func() time.Time
}

// Server is an API server in memory. It is not safe for concurrent use.
type Server struct{ options Options }

// New returns a server with the built-in resources and no objects but the namespaces that a new cluster has.
func New(o Options) *Server { return &Server{options: o} }

// Do serves a request.
func (s *Server) Do(Request) Response { panic("not written yet") }

// Watch is a watch that the server accepted. Its events wait until they are taken.
type Watch struct{}

// Pending returns the number of events that wait.
func (w *Watch) Pending() int { return 0 }

// Next takes the next event, as a line of JSON with its newline. It returns false if none waits.
func (w *Watch) Next() ([]byte, bool) { return nil, false }

// Ended reports whether the server has ended the watch, so that nothing follows the events that wait.
func (w *Watch) Ended() bool { return false }

// Close ends the watch on the side of the client.
func (w *Watch) Close() {}

// Write is a write that the server has done.
type Write struct {
	// Revision is the resourceVersion that the write made.
	Revision int64
	// At is the time of the write.
	At time.Time
	// User and Manager are who wrote, Verb what was asked for: create, update, patch, apply, delete, or collect for the garbage collector.
	User, Manager, Verb string
	// Group, Resource, Subresource, Namespace, Name and UID name what was written.
	Group, Resource, Subresource, Namespace, Name, UID string
	// Before and After are the object's JSON in its storage version, nil where it did not or does not exist.
	Before, After []byte
}

// Journal returns all writes that changed something, oldest first. The caller must not modify it.
func (s *Server) Journal() []Write { return nil }
