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

package exitstatus

import (
	"errors"

	"github.com/spf13/cobra"
)

// The statuses.
const (
	// Failed is that of a command that failed.
	Failed = 1
	// Different is that of a command that found a difference.
	Different = 1
	// Trouble is that of a command that compares, and could not.
	Trouble = 2
)

// Error is an error that ends the process with a status.
type Error struct {
	// Status is not 0.
	Status int
	// Err is what is printed, nil if everything was said.
	Err error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return "something differs"
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// ErrDifferent says that something differs, which was printed.
var ErrDifferent error = &Error{Status: Different}

// Of returns the status for what a command returned, and what is left to print, nil if nothing is.
func Of(err error) (status int, message error) {
	e, ok := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return 0, nil
	case !ok:
		return Failed, err
	case e.Err == nil:
		return e.Status, nil
	}
	return e.Status, err
}

// Compares lets a command that compares end with Trouble for every error that has no status of its own.
func Compares(cmd *cobra.Command) *cobra.Command {
	run, args := cmd.RunE, cmd.Args
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return trouble(run(cmd, args)) }
	cmd.Args = func(cmd *cobra.Command, given []string) error { return trouble(args(cmd, given)) }
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return trouble(cmd.Parent().FlagErrorFunc()(cmd, err))
	})
	return cmd
}

func trouble(err error) error {
	if _, ok := errors.AsType[*Error](err); ok || err == nil {
		return err
	}
	return &Error{Status: Trouble, Err: err}
}
