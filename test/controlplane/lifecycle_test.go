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

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestTwoControlPlanesDoNotMeet(t *testing.T) {
	// Folders of their own, so that both can be told to keep theirs or not.
	kept := filepath.Join(t.TempDir(), "kept")
	flags := [][]string{{"--with-stdin"}, {"--dir", kept, "--keep", "--fsync", "--frugal"}}
	running := make([]*controlPlane, len(flags))
	var starts sync.WaitGroup
	for i := range flags {
		starts.Go(func() { running[i] = startControlPlane(t, flags[i]...) })
	}
	starts.Wait()
	if t.Failed() {
		t.FailNow()
	}
	one, two := running[0], running[1]
	if one.Server == two.Server || one.EtcdServers == two.EtcdServers || one.Dir == two.Dir {
		t.Errorf("they share something: %+v and %+v", one.Info, two.Info)
	}
	one.kubectl(t, "create", "namespace", "only-in-one")
	if found := two.kubectl(t, "get", "namespace", "only-in-one", "--ignore-not-found"); found != "" {
		t.Errorf("a namespace of one is in the other: %s", found)
	}

	// One ends with its starter, the other by Ctrl-C.
	if err := one.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	one.awaitEnd(t)
	two.end(t, os.Interrupt)
	for name, c := range map[string]*controlPlane{"standard input closed": one, "Ctrl-C": two} {
		if code := c.command.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s: the command ended with %d:\n%s", name, code, c.stderr)
		}
	}
	if exists(t, one.Dir) {
		t.Errorf("the folder %s is still there", one.Dir)
	}
	if !exists(t, filepath.Join(kept, "logs", "kube-apiserver.log")) {
		t.Errorf("the folder %s was to be kept", kept)
	}
}

func TestDeathOfAProgramEndsAll(t *testing.T) {
	c := startControlPlane(t)
	if err := syscall.Kill(c.Processes["etcd"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.awaitEnd(t)
	if code := c.command.ProcessState.ExitCode(); code != 1 {
		t.Errorf("the command ended with %d, want 1", code)
	}
	for _, want := range []string{"etcd ended (signal: killed)", "the end of its log"} {
		if !strings.Contains(c.stderr.String(), want) {
			t.Errorf("%q is not in what was printed:\n%s", want, c.stderr)
		}
	}
	if exists(t, c.Dir) {
		t.Errorf("the folder %s is still there", c.Dir)
	}
}

func TestUse(t *testing.T) {
	programs := buildPrograms(t)
	occupied := t.TempDir()
	if err := os.WriteFile(filepath.Join(occupied, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"no command":         {nil, 2, "", "usage: controlplane"},
		"unknown command":    {[]string{"stop"}, 2, "", "usage: controlplane"},
		"help":               {[]string{"start", "-h"}, 0, "", "--with-stdin"},
		"flag of another":    {[]string{"path", "--keep"}, 2, "", "usage: controlplane"},
		"argument":           {[]string{"path", "more"}, 1, "", `unexpected argument "more"`},
		"path":               {[]string{"path"}, 0, programs + "\n", ""},
		"build of the built": {[]string{"build"}, 0, "", ""},
		"no module":          {[]string{"path", "--module", occupied}, 1, "", "reading the versions of the control plane"},
		"occupied folder":    {[]string{"start", "--dir", occupied}, 1, "", "is not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := mainCode(test.args, stdio{strings.NewReader(""), &out, &errs})
			if code != test.code || out.String() != test.out || !strings.Contains(errs.String(), test.err) {
				t.Errorf("got code %d, output %q, errors %q", code, out.String(), errs.String())
			}
		})
	}
	if !exists(t, filepath.Join(occupied, "precious")) {
		t.Error("a folder that was refused was emptied")
	}
}
