//go:build unix

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
	"syscall"
)

// shell makes a command that does not end with the context, in a process group of its own, so that Ctrl-C reaches us alone and the group
// can be ended as a whole.
func shell(ctx context.Context, text string) *exec.Cmd {
	command := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", text)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return command
}

// interrupt asks a command and what it started to end.
func interrupt(command *exec.Cmd) { signal(command, syscall.SIGTERM) }

// kill ends them.
func kill(command *exec.Cmd) { signal(command, syscall.SIGKILL) }

func signal(command *exec.Cmd, s syscall.Signal) {
	_ = syscall.Kill(-command.Process.Pid, s) // It may find nobody.
}
