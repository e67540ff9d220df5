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
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleVariable makes this test's program play a part instead of running tests.
const roleVariable = "CONTROL_PLANE_PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "patient":
		// Ends when it is asked to.
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("listening")
		<-asked
		fmt.Println("asked to end")
	case "stubborn":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("listening")
		for range asked {
		}
	case "starter":
		// Starts a child, tells its number and waits to be killed.
		_ = os.Setenv(roleVariable, "stubborn")
		ctx := context.Background() //nolint:forbidigo // This is a main function.
		child, err := Start(ctx, os.Args[1], Program{Name: "child", Path: os.Args[0]})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(child.ID())
		select {}
	}
}

// start starts this test's program in a role.
func start(t *testing.T, role string) *Process {
	t.Helper()
	t.Setenv(roleVariable, role)
	p, err := Start(t.Context(), t.TempDir(), Program{Name: role, Path: os.Args[0]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { StopAll(0, p) })
	return p
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (p *Process) hasLogged(text string) func() bool {
	return func() bool { return strings.Contains(p.tail(), text) }
}

func TestStopAllAsksFirst(t *testing.T) {
	p, other := start(t, "patient"), start(t, "patient")
	eventually(t, "the program to listen", p.hasLogged("listening"))
	eventually(t, "the other program to listen", other.hasLogged("listening"))
	StopAll(30*time.Second, p, other)
	for _, stopped := range []*Process{p, other} {
		ended, ok := errors.AsType[*EndedError](stopped.Err())
		if !ok || ended.Err != nil || !strings.Contains(ended.Tail, "asked to end") {
			t.Errorf("want an end by SIGTERM with status 0, got %v", stopped.Err())
		}
	}
}

func TestKernelEndsTheProgramWithItsStarter(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Logf("%s cannot; there the program outlives a starter that is killed", runtime.GOOS)
		return
	}
	starter := exec.CommandContext(t.Context(), os.Args[0], t.TempDir())
	starter.Env = append(os.Environ(), roleVariable+"=starter")
	output, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the starter printed %q", line)
	}
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the child is not running: %v", err)
	}
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := starter.Wait(); err == nil {
		t.Error("the starter ended with success although it was killed")
	}
	eventually(t, "the kernel to end the child", func() bool { return gone(child) })
}

// gone tells whether a process has ended. One whose parent has not asked for its end is a zombie, and gone.
func gone(id int) bool {
	if errors.Is(syscall.Kill(id, 0), syscall.ESRCH) {
		return true
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id))
	return err != nil || strings.Contains(string(status), "State:\tZ")
}
