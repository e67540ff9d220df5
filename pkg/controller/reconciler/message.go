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

package reconciler

import "strings"

// contextError says what was being done to the parent when an error occurred. The log has it. Events on the parent leave it out: they
// are about the parent, and begin with what is wrong.
type contextError struct {
	doing string
	err   error
}

// InContext says of an error what was being done to the parent.
func InContext(doing string, err error) error { return &contextError{doing, err} }

// Error implements error.
func (e *contextError) Error() string { return e.doing + ": " + e.err.Error() }

// Unwrap returns the error.
func (e *contextError) Unwrap() error { return e.err }

// message returns the text of an error of a sync for people who look at the parent.
func message(err error) string {
	switch e := err.(type) { //nolint:errorlint // What is wrapped has its turn.
	case *contextError:
		return message(e.err)
	case interface{ Unwrap() []error }:
		var whole, texts []string
		for _, each := range e.Unwrap() {
			whole, texts = append(whole, each.Error()), append(texts, message(each))
		}
		if err.Error() == strings.Join(whole, "\n") {
			return strings.Join(texts, "; ") // They were joined, and not made a sentence of.
		}
	}
	return err.Error()
}
