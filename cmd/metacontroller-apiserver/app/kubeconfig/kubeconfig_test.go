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

package kubeconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func TestRequestsWaitForNoLimitOfTheirOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n" +
		"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := "https://127.0.0.1:1"; config.Host != want {
		t.Errorf("the cluster is %s, want %s", config.Host, want)
	}
	client, err := rest.UnversionedRESTClientFor(dynamic.ConfigFor(config))
	if err != nil {
		t.Fatal(err)
	}
	if limit := client.GetRateLimiter(); limit != nil {
		t.Errorf("requests wait for a limit of %v a second", limit.QPS())
	}
}

func TestAFileThatIsMissingIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "reading kubeconfig") || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names %s", err, path)
	}
}

func TestWithoutAClusterTheFlagIsNamed(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, tc := range map[string]struct{ variable, path, want string }{
		"without a file":     {"", "", "there is no kubeconfig: name its file with --kubeconfig or the environment variable KUBECONFIG"},
		"with an empty file": {"", os.DevNull, os.DevNull + ": it names no cluster: give another file with --kubeconfig"},
		"by the environment": {os.DevNull, "", "there is no kubeconfig: name its file with --kubeconfig or the environment variable KUBECONFIG"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.variable)
			if _, err := Read(tc.path); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}
