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

package client

import "errors"

// ErrUnread marks errors of reading a response: the API server did something, and the response does not tell what.
var ErrUnread = errors.New("reading the API server's response")

// A RepeatedError is the end of a request that was sent more than once, because an API server failed and wanted it to be sent again at
// once. What failed may have been done all the same, so that even a refusal does not say that nothing was.
type RepeatedError struct {
	// Err is the error of the last attempt.
	Err error
}

// Error returns the last error.
func (e *RepeatedError) Error() string { return e.Err.Error() }

// Unwrap returns the last error.
func (e *RepeatedError) Unwrap() error { return e.Err }

// repeated returns the error of a request, of which an earlier attempt has failed or not.
func repeated(failed bool, err error) error {
	if failed && err != nil {
		return &RepeatedError{Err: err}
	}
	return err
}
