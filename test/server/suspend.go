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

package server

import "syscall"

// Suspend stops the running server where it is, with SIGSTOP, as a machine does that is paused. The server goes on at the end of the test, if
// Resume was not called.
func (s *Server) Suspend() {
	s.t.Helper()
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	suspended := s.process
	s.t.Cleanup(func() { _ = suspended.Signal(syscall.SIGCONT) }) // It may have ended.
}

// Resume lets a suspended server go on.
func (s *Server) Resume() {
	s.t.Helper()
	if err := s.process.Signal(syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
}
