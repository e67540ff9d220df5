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

package server

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// apiVariable is the environment variable that has servers under test run on the definitions of artifacts/definitions, if it is "definitions".
const apiVariable = "METACONTROLLER_TEST_API"

// OnDefinitions reports whether the environment wants servers to run on definitions.
func OnDefinitions() bool { return os.Getenv(apiVariable) == "definitions" }

// Definitions returns the CustomResourceDefinitions of artifacts/definitions.
func Definitions(t testing.TB) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cluster.Root(), "artifacts", "definitions", "*k8s.io_*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no definitions: %v", err)
	}
	var manifests []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("reading a definition: %v", err)
		}
		manifests = append(append(manifests, "---\n"...), text...)
	}
	return string(manifests)
}

// AsMetacontroller makes the command of a server on definitions that is started as Metacontroller's manifests start Metacontroller: by its name,
// with its flags and no others.
func AsMetacontroller(t testing.TB) func(context.Context, ...string) *exec.Cmd {
	t.Helper()
	program := filepath.Join(t.TempDir(), "metacontroller")
	if err := os.Symlink(Binary(t), program); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, args ...string) *exec.Cmd {
		args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--api=definitions" })
		return exec.CommandContext(ctx, program, append([]string{"--zap-log-level=4", "-discovery-interval=20s", "--cache-flush-interval=30m"}, args...)...)
	}
}

// ServesAPI reports whether the server serves the API itself, with admission, subresources and tables. Otherwise the cluster does, by definitions.
func (s *Server) ServesAPI() bool { return s.options.Definitions == "" }

// onDefinitions returns the arguments of a server that serves nothing but probes, metrics and profiles, all of them at one port.
func onDefinitions(kubeconfig string, port int) []string {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	return []string{
		"--api=definitions", "--kubeconfig", kubeconfig, "--metrics-address", address, "--health-probe-bind-address", address, "--pprof-address", address,
	}
}
