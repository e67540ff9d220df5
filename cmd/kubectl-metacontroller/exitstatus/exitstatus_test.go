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

package exitstatus_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
)

func TestStatusesOfErrors(t *testing.T) {
	cause := errors.New("no luck")
	for name, tc := range map[string]struct {
		err     error
		status  int
		message string
	}{
		"success":              {nil, 0, ""},
		"an error":             {cause, 1, "no luck"},
		"a difference":         {exitstatus.ErrDifferent, 1, ""},
		"trouble":              {&exitstatus.Error{Status: 2, Err: cause}, 2, "no luck"},
		"trouble that is told": {fmt.Errorf("planning: %w", &exitstatus.Error{Status: 2, Err: cause}), 2, "planning: no luck"},
	} {
		t.Run(name, func(t *testing.T) {
			status, err := exitstatus.Of(tc.err)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if status != tc.status || message != tc.message {
				t.Errorf("got %d, %q, want %d, %q", status, message, tc.status, tc.message)
			}
		})
	}
}

// What a command that compares returns is told from a difference, wherever it failed.
func TestACommandThatComparesHasTroubleWithEveryError(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		result error
		want   int
	}{
		"same":         {[]string{"x"}, nil, 0},
		"different":    {[]string{"x"}, exitstatus.ErrDifferent, 1},
		"failed":       {[]string{"x"}, errors.New("no luck"), 2},
		"no argument":  {nil, nil, 2},
		"unknown flag": {[]string{"x", "--unknown"}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			root := &cobra.Command{Use: "root", SilenceUsage: true, SilenceErrors: true}
			root.AddCommand(exitstatus.Compares(&cobra.Command{
				Use: "compare", Args: cobra.ExactArgs(1), RunE: func(*cobra.Command, []string) error { return tc.result },
			}))
			root.SetArgs(append([]string{"compare"}, tc.args...))
			if got, _ := exitstatus.Of(root.ExecuteContext(t.Context())); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
