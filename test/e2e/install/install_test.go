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

// Package install plays the commands of docs/operations/install.md, as far as they need no image: preflight, and the manifests with the
// kustomizations that the page shows.
package install

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

const (
	page        = "docs/operations/install.md"
	configuring = "docs/operations/configure.md"
)

var update = flag.Bool("update", false, "write what is printed to "+page)

func TestMain(m *testing.M) { os.Exit(terminal.Main(m)) }

// kustomizations are those of a document, by the overlay that they name.
func kustomizations(t *testing.T, document string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cluster.Root(), filepath.FromSlash(document)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if overlay := regexp.MustCompile(`artifacts/overlays/(\S+)`).FindStringSubmatch(block[1]); overlay != nil {
			found[overlay[1]] = block[1]
		}
	}
	return found
}

// shell returns a shell in a folder with the kustomization and this repository, in which the server's binary is found.
func shell(t *testing.T, kustomization string) *terminal.Shell {
	t.Helper()
	s := terminal.New(t, cluster.Shared(t))
	programs := t.TempDir()
	binary, err := filepath.Abs(server.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		filepath.Join(programs, "metacontroller-apiserver"): binary,
		filepath.Join(s.Folder, "metacontroller-apiserver"): cluster.Root(),
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	s.Prefer(programs)
	if err := os.WriteFile(filepath.Join(s.Folder, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// installedImage is the image of the server's Pods.
func installedImage(t *testing.T) string {
	t.Helper()
	return cluster.Shared(t).Kubectl(t, "get", "statefulset", "--namespace", "metacontroller", "-o", "jsonpath={.items[*].spec.template.spec.containers[*].image}")
}

func TestThePageIsPlayed(t *testing.T) {
	shell(t, kustomizations(t, page)["single-node"]).Play(t, page, 3, *update)
	if image := installedImage(t); image != "example.org/metacontroller-apiserver:v0.1.0" {
		t.Errorf("the image is %q", image)
	}
}

// TestTheReadmeInstalls runs the line of README.md that installs the server.
func TestTheReadmeInstalls(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(cluster.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^kubectl kustomize artifacts/overlays/.*$`).FindString(string(readme))
	if line == "" {
		t.Fatal("README.md has no line that installs the server")
	}
	shell(t, "").Must(t, "cd metacontroller-apiserver && "+line)
	if image := installedImage(t); image != "registry.example.org/metacontroller-apiserver:v0.1.0" {
		t.Errorf("the image is %q", image)
	}
}

func TestTheAddressesOfEtcdAreNamedInOnePlace(t *testing.T) {
	printed := shell(t, kustomizations(t, configuring)["production"]).Must(t, "kubectl kustomize .")
	const servers = "https://etcd-0.example.org:2379,https://etcd-1.example.org:2379,https://etcd-2.example.org:2379"
	if !strings.Contains(printed, "value: "+servers+"\n") {
		t.Errorf("the addresses are not in\n%s", printed)
	}
	for _, unwanted := range []string{"etcd.metacontroller.svc", "image: metacontroller-apiserver"} {
		if strings.Contains(printed, unwanted) {
			t.Errorf("there is still %q", unwanted)
		}
	}
}
