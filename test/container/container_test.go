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

package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// made is what `make image-local` writes.
var made = filepath.Join("..", "..", "bin", "image-local", "oci")

func TestMain(m *testing.M) {
	if status, inside := Main(); inside {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// Whatever the kernel gives, the program runs; what it does not give is told.
func TestEveryIsolation(t *testing.T) {
	c := newContainer(t, made)
	for _, c.isolation = range isolations() {
		t.Run(c.isolation.name, func(t *testing.T) {
			output, err := c.version()
			if err != nil && strings.Contains(output+err.Error(), "operation not permitted") {
				t.Skipf("this kernel does not give it: %v: %s", err, output)
			}
			if err != nil || !strings.HasPrefix(output, "metacontroller-apiserver version v") {
				t.Errorf("the program prints %q: %v", output, err)
			}
		})
	}
}

// Metacontroller's manifests name its program, and what the image has there runs on definitions by default.
func TestTheImageStartsAsMetacontrollersDoes(t *testing.T) {
	c := New(t, made)
	c.config.Entrypoint = []string{"/usr/bin/metacontroller"}
	help, err := c.Command(t.Context(), "-help").Output()
	if err != nil || !strings.Contains(string(help), `(default "definitions")`) {
		t.Errorf("the program prints %s: %v", help, err)
	}
}
