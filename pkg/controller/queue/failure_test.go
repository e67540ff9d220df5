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

package queue

import (
	"errors"
	"fmt"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

func TestErrorsOfHooksHaveReasons(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"Call":        {&webhook.CallError{Err: errors.New("refused")}, metrics.ReasonHook},
		"Status":      {&webhook.StatusError{Code: 500}, metrics.ReasonHook},
		"Credentials": {&webhook.CredentialsError{Err: errors.New("no such Secret")}, metrics.ReasonHook},
		"Rejected":    {&hook.RejectedError{Detail: "no list"}, metrics.ReasonResponse},
		"Other":       {errors.New("other"), metrics.ReasonOther},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{tc.err, fmt.Errorf("sync hook: %w", tc.err), errors.Join(tc.err, errors.New("other"))} {
				if f := classify(err); f.result != metrics.Failed || f.reason != tc.want {
					t.Errorf("%v is classified %v %q, want %q", err, f.result, f.reason, tc.want)
				}
			}
		})
	}
}
