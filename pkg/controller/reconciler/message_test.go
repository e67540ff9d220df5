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

import (
	"errors"
	"fmt"
	"testing"
)

func TestMessagesBeginWithWhatIsWrong(t *testing.T) {
	cause := errors.New("nothing listens there")
	inContext := InContext("can't update Thing ns/x", fmt.Errorf("calling it: %w", cause))
	for _, test := range []struct {
		why  string
		err  error
		want string
	}{
		{"what was done to the parent is left out", inContext, "calling it: nothing listens there"},
		{"also when it was nested", InContext("syncing Thing ns/x", inContext), "calling it: nothing listens there"},
		{"of several errors", errors.Join(inContext, cause), "calling it: nothing listens there; nothing listens there"},
		{"of several errors in a context", InContext("syncing Thing ns/x", errors.Join(inContext, cause)), "calling it: nothing listens there; nothing listens there"},
		{"an error without context is kept", fmt.Errorf("calling it: %w", cause), "calling it: nothing listens there"},
	} {
		t.Run(test.why, func(t *testing.T) {
			if got := message(test.err); got != test.want {
				t.Errorf("message %q, want %q", got, test.want)
			}
			if !errors.Is(test.err, cause) {
				t.Error("the cause is lost")
			}
		})
	}
}
