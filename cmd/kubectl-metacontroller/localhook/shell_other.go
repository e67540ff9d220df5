//go:build !unix

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

package localhook

import (
	"context"
	"os/exec"
	"strconv"
)

// shell makes a command that does not end with the context.
func shell(ctx context.Context, text string) *exec.Cmd {
	return exec.CommandContext(context.WithoutCancel(ctx), "cmd", "/C", text)
}

// interrupt ends a command and what it started: Windows has no signal that asks for it.
func interrupt(command *exec.Cmd) {
	_ = exec.Command("taskkill", "/T", "/F", "/PID", strconv.Itoa(command.Process.Pid)).Run() // It may find nobody.
}

// kill ends the command, if that is left.
func kill(command *exec.Cmd) {
	_ = command.Process.Kill() // It may have ended.
}
