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

package hook

import (
	"errors"
	"time"
)

// MaxDelay is the longest time after which a hook can be called again at its own wish: a longer resyncAfterSeconds or Retry-After
// counts as this.
const MaxDelay = 365 * 24 * time.Hour

// A RejectedError says that the hook returned and that the response cannot be used. Nothing of it is applied. Another
// call is of no use before the hook or its input changes.
type RejectedError struct {
	// Field is the place in the response, such as "children[2]" or "status". Empty: the response as a whole.
	Field string
	// Detail says what is wrong and, where that is not obvious, what to do.
	Detail string
}

// Error returns one sentence without the name of the hook, which the caller knows.
func (e *RejectedError) Error() string {
	if e.Field == "" {
		return e.Detail
	}
	return e.Field + ": " + e.Detail
}

// FailureReason returns Response, by which metrics count the error.
func (*RejectedError) FailureReason() string { return "Response" }

// IsRejected reports whether err is or wraps a [RejectedError].
func IsRejected(err error) bool {
	_, ok := errors.AsType[*RejectedError](err)
	return ok
}
