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

package process

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Output runs a short program to its end and returns what it printed on standard output. The error of one that failed
// holds its arguments and what it printed on standard error. When ctx is done the program is killed, and the error is the
// context's cause.
func Output(ctx context.Context, name string, args ...string) (string, error) {
	return OutputOf(ctx, exec.CommandContext(ctx, name, args...))
}

// OutputOf is Output for a command that was made with ctx.
func OutputOf(ctx context.Context, cmd *exec.Cmd) (string, error) {
	ownGroup(cmd)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, stderr.String())
	}
	return stdout.String(), nil
}
