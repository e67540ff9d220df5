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

package preflight

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// execute runs the command with a kubeconfig of a cluster that does not answer, and returns what it prints.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n" +
		"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := NewCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"--kubeconfig=" + kubeconfig}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"an unknown flag":        {[]string{"--workerz=1"}, "unknown flag: --workerz (see preflight --help)"},
		"an argument":            {[]string{"now"}, `unknown command "now"`},
		"an unknown format":      {[]string{"-o", "yaml"}, `--output must be text or json, not "yaml"`},
		"no time":                {[]string{"--timeout=0s"}, "--timeout must be positive, not 0s"},
		"an account alone":       {[]string{"--service-account=server"}, `"server" is not NAMESPACE/NAME`},
		"a certificate alone":    {[]string{"--tls-cert-file=c"}, "--tls-cert-file and --tls-private-key-file need each other"},
		"an authority alone":     {[]string{"--ca-file=c"}, "--ca-file needs --tls-cert-file"},
		"two certificates":       {[]string{"--tls-cert-file=c", "--tls-private-key-file=k", "--data-dir=d"}, "exclude each other"},
		"half a client of etcd":  {[]string{"--etcd-servers=https://e", "--etcd-certfile=c"}, "--etcd-certfile and --etcd-keyfile need each other"},
		"TLS for nothing":        {[]string{"--etcd-cafile=c"}, "need --etcd-servers"},
		"a missing kubeconfig":   {[]string{"--kubeconfig=" + filepath.Join(t.TempDir(), "none")}, "reading kubeconfig"},
		"a kubeconfig of nobody": {[]string{"--kubeconfig=" + os.DevNull}, "reading kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, test.arguments...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
			if e, ok := errors.AsType[*Error](err); !ok || e.ExitStatus() != statusTrouble {
				t.Errorf("%v does not end the process with %d", err, statusTrouble)
			}
		})
	}
}

func TestAClusterThatDoesNotAnswerIsAProblem(t *testing.T) {
	printed, err := execute(t, "--etcd-servers=http://127.0.0.1:1", "--timeout=300ms")
	e, ok := errors.AsType[*Error](err)
	if !ok || e.ExitStatus() != statusProblem || e.Error() != "" {
		t.Fatalf("got %v, want everything printed and status %d", err, statusProblem)
	}
	for _, want := range []string{
		"failed   The kube-apiserver at https://127.0.0.1:1 does not answer: ",
		"\n         Look at the address and the credentials with kubectl version",
		"skipped  No --tls-cert-file is given: the server makes its own certificate.\n",
		"failed   etcd at http://127.0.0.1:1 does not answer: no answer within 300ms",
		"\n2 problems and no warning: solve the problems before the server is started.\n",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("there is no %q in\n%s", want, printed)
		}
	}
}

func TestProgramsGetJSON(t *testing.T) {
	printed, err := execute(t, "-o", "json")
	if e, ok := errors.AsType[*Error](err); !ok || e.ExitStatus() != statusProblem {
		t.Fatalf("got %v, want status %d", err, statusProblem)
	}
	var got Report
	if err := json.Unmarshal([]byte(printed), &got); err != nil {
		t.Fatalf("reading %s: %v", printed, err)
	}
	if got.Result != Failed || len(got.Findings) != 3 || got.Findings[0].Check != "cluster" || got.Findings[0].Result != Failed ||
		got.Findings[1].Result != Skipped || got.Findings[2].Check != "etcd" {
		t.Errorf("got %+v", got)
	}
}

func TestReportsAreText(t *testing.T) {
	for name, test := range map[string]struct {
		findings []Finding
		want     string
	}{
		"all is well": {[]Finding{{Result: OK, Message: "Fine."}}, "ok       Fine.\n\nNothing is in the way.\n"},
		"a warning": {
			[]Finding{{Result: Warning, Message: "Old."}, {Result: Skipped, Message: "Unasked."}},
			"warning  Old.\nskipped  Unasked.\n\nNo problem and 1 warning: the server can be started.\n",
		},
		"a problem with details": {
			[]Finding{{Result: Failed, Message: "Lacks:", Details: []string{"get this", "list that"}, Next: "Do:\nit"}},
			"failed   Lacks:\n           get this\n           list that\n         Do:\n           it\n\n" +
				"1 problem and no warning: solve the problems before the server is started.\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := newReport(test.findings).print(&out, formatText); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}
