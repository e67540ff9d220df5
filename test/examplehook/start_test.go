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

package examplehook

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A hook of an example listens at every address, unless HOST names one: a cluster may have addresses of IPv6 only.
func TestHooksListenAtAddressesOfBothFamilies(t *testing.T) {
	hosts := []string{"127.0.0.1", "::1"}
	if listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:0"); err != nil {
		hosts = hosts[:1] // This machine has none of IPv6.
	} else if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob("../../artifacts/examples/*/*.py")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("there are no hooks of examples: %v", err)
	}
	environment := slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "HOST=") })
	for _, script := range scripts {
		t.Run(filepath.Base(filepath.Dir(script)), func(t *testing.T) {
			_, port, _ := strings.Cut(strings.TrimPrefix(start(t, script, environment), "http://"), ":")
			for _, host := range hosts {
				connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
				if err != nil {
					t.Error(err)
					continue
				}
				_ = connection.Close() // Nothing was sent.
			}
		})
	}
}

// lambda prints the digest of the script that the hook in a folder makes of some code, and what the script answers to one request.
const lambda = `
import collections, http.server, sys

folder, code = sys.argv[1:]
sys.path.insert(0, folder)
sys.dont_write_bytecode = True
from sync import sync

class Once:
    def __init__(self, address, handler):
        self.handler = handler

    def serve_forever(self):
        request = object.__new__(self.handler)
        request.path, request.wfile = "/", sys.stdout.buffer
        request.send_response = request.send_header = request.end_headers = lambda *_: None
        request.do_GET()

http.server.HTTPServer = Once
parent = {"metadata": {"name": "demo"}, "spec": {"code": code, "replicas": 1}}
children = sync(parent, collections.defaultdict(list))["children"]
print(children[-1]["metadata"]["annotations"]["example.com/script"], flush=True)
exec(children[0]["data"]["script.py"])
`

// A lambda that raises an exception answers no request, which the tests on a control plane do not see: its Pods are simulated.
func TestTheLambdaOfThePageAnswers(t *testing.T) {
	folder := filepath.FromSlash("../../artifacts/examples/python-lambda")
	page, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`"code":("(?:[^"\\]|\\.)*")`).FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no code")
	}
	var code string
	if err := json.Unmarshal(found[1], &code); err != nil {
		t.Fatal(err)
	}
	printed, err := exec.CommandContext(t.Context(), "python3", "-c", lambda, folder, code).CombinedOutput()
	digest, answer, _ := strings.Cut(string(printed), "\n")
	if err != nil || answer != "1" {
		t.Errorf("%s answers %q, error %v", code, answer, err)
	}
	if n := strings.Count(string(page), digest); n != 4 {
		t.Errorf("the page has the digest %s of the script %d times, want 4", digest, n)
	}
}
