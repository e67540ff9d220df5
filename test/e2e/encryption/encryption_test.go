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

// Package encryption checks that what the server stores is encrypted with --encryption-provider-config: through a rotation of keys, with
// restarts, and with keys that are missing. It holds tests only.
package encryption

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// marker is in what is stored, and in nothing else.
const marker = "this-is-stored-by-the-test"

// provider is the entry of a key in a configuration.
func provider(name string) string {
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name[:1]), 32))
	return fmt.Sprintf("  - secretbox: {keys: [{name: %s, secret: %s}]}\n", name, key)
}

const identity = "  - identity: {}\n"

// A store is a running server whose configuration of encryption the test changes.
type store struct {
	*server.Server

	t      *testing.T
	c      *cluster.Cluster
	config string
}

func newStore(t *testing.T, providers ...string) *store {
	t.Helper()
	s := &store{t: t, c: cluster.Shared(t), config: filepath.Join(t.TempDir(), "encryption.yaml")}
	s.configure(providers...)
	s.Server = server.Start(t, s.c, server.Options{Args: []string{"--encryption-provider-config", s.config}})
	return s
}

// configure writes the configuration: the first provider encrypts, all decrypt.
func (s *store) configure(providers ...string) {
	s.t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: ['*.metacontroller.k8s.io']\n  providers:\n" +
		strings.Join(providers, "")
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// restart restarts the server with other providers.
func (s *store) restart(providers ...string) {
	s.t.Helper()
	if err := s.Stop(); err != nil {
		s.t.Fatal(err)
	}
	s.configure(providers...)
	s.Restart()
}

// create creates a controller that nobody runs, with the marker. It ends with the store.
func (s *store) create(name string) {
	s.t.Helper()
	s.c.KubectlInput(s.t, `{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController,
		metadata: {name: `+name+`, annotations: {note: `+marker+`}},
		spec: {generateSelector: true, paused: true, parentResource: {apiVersion: v1, resource: configmaps,
			labelSelector: {matchLabels: {nobody: has-this}}}, hooks: {sync: {webhook: {url: "http://hook.invalid/"}}}}}`, "create", "-f", "-")
}

// readable fails the test unless the controllers are there.
func (s *store) readable(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if got := s.c.Kubectl(s.t, "get", "compositecontroller", name, "-o", "jsonpath={.metadata.annotations.note}"); got != marker {
			s.t.Errorf("%s has the note %q", name, got)
		}
	}
}

// snapshot returns all that is stored.
func (s *store) snapshot() []byte {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "backup.db")
	if _, err := process.Output(s.t.Context(), server.Binary(s.t), "snapshot", "save", file, "--data-dir", s.DataDir()); err != nil {
		s.t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	return content
}

// rewrite writes all objects anew, with the command of the page. As that says, a conflict is with a write that encrypts as well.
func (s *store) rewrite() {
	s.t.Helper()
	const all = "compositecontrollers.metacontroller.k8s.io,decoratorcontrollers.metacontroller.k8s.io,controllerrevisions.metacontroller.k8s.io"
	objects := s.c.Kubectl(s.t, "get", "--all-namespaces", "-o", "json", all)
	output, err := s.c.TryKubectl(s.t.Context(), objects, "replace", "-f", "-")
	for line := range strings.Lines(output) {
		if !strings.HasSuffix(line, " replaced\n") && !strings.HasPrefix(line, "Error from server (Conflict): ") {
			s.t.Fatalf("kubectl replace: %v\n%s", err, output)
		}
	}
}

func TestWhatIsStoredIsEncryptedThroughARotationOfKeys(t *testing.T) {
	s := newStore(t, identity)
	s.create("before")
	if !bytes.Contains(s.snapshot(), []byte(marker)) {
		t.Fatal("a store that is not encrypted does not show the marker, so this test would show nothing")
	}

	s.restart(provider("first"), identity)
	s.readable("before")
	s.create("encrypted")
	s.rewrite()
	if !bytes.Contains(s.snapshot(), []byte("k8s:enc:secretbox:v1:first:")) {
		t.Error("nothing is encrypted with the first key")
	}

	// Every object is encrypted by now, so the provider that reads others may go.
	s.restart(provider("first"))
	s.readable("before", "encrypted")

	// To another key: it is added, everything is written anew, the former one goes.
	s.restart(provider("second"), provider("first"))
	s.readable("before", "encrypted")
	s.rewrite()
	s.restart(provider("second"))
	s.readable("before", "encrypted")
	s.create("later")
	s.readable("later")
}

// TestMissingKeysAreToldInWords begins with a new store, in which nothing is readable without the key.
func TestMissingKeysAreToldInWords(t *testing.T) {
	s := newStore(t, provider("first"))
	s.create("hidden")
	s.readable("hidden")
	if content := s.snapshot(); bytes.Contains(content, []byte(marker)) || !bytes.Contains(content, []byte("/compositecontrollers/hidden")) {
		t.Error("what is stored shows the marker, or not the name of its key")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	encrypted := []string{"--encryption-provider-config", s.config}
	for name, test := range map[string]struct {
		reason    string
		providers []string
		args      []string
		want      string
	}{
		"AnotherKey": {
			"The former key was taken out before objects were written anew.",
			[]string{provider("other")},
			encrypted,
			"a stored object cannot be decrypted: /metacontroller-apiserver/metacontroller.k8s.io/compositecontrollers/hidden: ",
		},
		"NoEncryption": {
			"The flag was forgotten.", nil, nil, "a stored object cannot be decrypted: /metacontroller-apiserver/metacontroller.k8s.io/compositecontrollers/hidden: ",
		},
		"AKeyOfTheSameName": {
			"Somebody made a key anew.",
			[]string{strings.Replace(provider("other"), "name: other", "name: first", 1)},
			encrypted,
			"a stored object cannot be decrypted: /metacontroller-apiserver/metacontroller.k8s.io/compositecontrollers/hidden: ",
		},
		"NoKey": {
			"The file was cut off.", []string{"  - secretbox: {keys: [{name: first, secret: eA==}]}\n"}, encrypted, "secret",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.configure(test.providers...)
			args := append([]string{
				"--kubeconfig", s.c.Kubeconfig, "--data-dir", s.DataDir(), "--bind-address", "127.0.0.1", "--secure-port",
				(&net.TCPAddr{Port: s.Port()}).String()[1:],
			}, test.args...)
			output, err := process.Command(t.Context(), server.Binary(t), args...).CombinedOutput()
			_, last, _ := strings.Cut(string(output), "\nError: ")
			if err == nil || !strings.Contains(last, test.want) {
				t.Errorf("%s\nthe server ended with %v and said %q, want %q", test.reason, err, last, test.want)
			}
		})
	}
	s.configure(provider("first"))
	s.Restart()
	s.readable("hidden")
}
