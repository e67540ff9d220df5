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

package subject

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script writes a program that stands in for a subject.
func script(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "metacontroller")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAPeerThatEndsInsteadOfServingIsToldOf(t *testing.T) {
	c := Cluster{Folder: t.TempDir(), Kubeconfig: "the-kubeconfig"}
	s, err := NewPeer(t.Context(), PeerOptions{Binary: script(t, `echo "given $*"; exit 3`), Arguments: []string{"--workers=7"}}, c)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Name(), "metacontroller --workers=7"; got != want {
		t.Errorf("the name is %q, want %q: results say with which flags it was measured", got, want)
	}
	err = s.Start(t.Context())
	if err == nil {
		t.Fatal("no error of a program that ended")
	}
	for _, want := range []string{"exit status 3", "--kubeconfig the-kubeconfig", "--metrics-address 127.0.0.1:", "--health-probe-bind-address 127.0.0.1:", "--workers=7"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	s.Stop()
	s.Stop()
}

func TestDefinitionsThatCannotBeAppliedAreToldOf(t *testing.T) {
	c := Cluster{Folder: t.TempDir(), Kubectl: script(t, `echo "given $*" >&2; exit 1`), Kubeconfig: "the-kubeconfig"}
	s, err := NewPeer(t.Context(), PeerOptions{Binary: "metacontroller", Definitions: "the-definitions"}, c)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Install(t.Context())
	if err == nil || !strings.Contains(err.Error(), "given --kubeconfig the-kubeconfig apply --server-side -f the-definitions") {
		t.Errorf("got %v, want an error that says what was tried", err)
	}
}
