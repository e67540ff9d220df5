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

package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// TestTheBrowserIsOpened has a program in place of xdg-open that writes the address to a pipe.
func TestTheBrowserIsOpened(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\necho \"$1\" > %q\n", pipe)
	if err := os.WriteFile(filepath.Join(folder, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	var out bytes.Buffer
	cmd := NewCommand(connectiontest.New(t, cluster(), genericiooptions.IOStreams{Out: &out, ErrOut: &out}))
	cmd.SetArgs([]string{"cc/web"})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	done := make(chan error)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	opened, err := os.ReadFile(pipe)
	if err != nil {
		t.Fatal(err)
	}
	if status, body, _ := get(t, &http.Client{Jar: newJar(t)}, strings.TrimSpace(string(opened))); status != http.StatusOK || !strings.Contains(body, "CompositeController web") {
		t.Errorf("the address that is opened is answered with %d: %s", status, body)
	}
	interrupt()
	if err := <-done; err != nil {
		t.Errorf("it is interrupted, and ends with %v", err)
	}
	if printed := out.String(); !strings.Contains(printed, strings.TrimSpace(string(opened))) {
		t.Errorf("it printed %s, and opened %s", printed, opened)
	}
}
