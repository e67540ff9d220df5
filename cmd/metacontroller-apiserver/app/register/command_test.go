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

package register

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

func TestWrongFlagsAreRefused(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n" +
		"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"NoAuthority":         {arguments: []string{"--port=1"}, want: "at least one of the flags in the group [data-dir ca-file ca-secret] is required"},
		"TwoAuthorities":      {arguments: []string{"--port=1", "--data-dir=d", "--ca-file=f"}, want: "[ca-file data-dir] were all set"},
		"NoPort":              {arguments: []string{"--data-dir=d"}, want: `required flag(s) "port" not set`},
		"PositionalArgument":  {arguments: []string{"now"}, want: `unknown command "now"`},
		"KubeconfigMissing":   {arguments: []string{"--port=1", "--data-dir=d", "--kubeconfig=" + dir + "/none"}, want: "reading kubeconfig"},
		"ServerNeverStarted":  {arguments: []string{"--port=1", "--data-dir=" + dir, "--timeout=0"}, want: "start the server on this data directory first"},
		"ServerDoesNotStart":  {arguments: []string{"--port=1", "--data-dir=" + dir, "--timeout=150ms"}, want: "start the server on this data directory first"},
		"AuthorityMissing":    {arguments: []string{"--port=1", "--ca-file=" + dir + "/none", "--timeout=0"}, want: "no such file"},
		"AuthorityIsEmpty":    {arguments: []string{"--port=1", "--ca-file=" + empty}, want: "holds no certificate"},
		"AuthorityUnreadable": {arguments: []string{"--port=1", "--ca-file=" + dir}, want: "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := NewRegisterCommand()
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			// A later flag of the same name counts, so the table can name another kubeconfig.
			cmd.SetArgs(append([]string{"--kubeconfig=" + kubeconfig}, test.arguments...))
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestTheAuthorityIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	path := servingcert.FilesIn(servingcert.Directory(dir)).CAFile
	// The file is made when the command says that it waits.
	out := writerFunc(func(line []byte) {
		if bytes.Contains(line, []byte("waiting for the server to make "+path)) {
			if _, err := servingcert.Ensure(t.Context(), servingcert.Directory(dir)); err != nil {
				t.Error(err)
			}
		}
	})
	bundle, err := readAuthority(t.Context(), path, time.Minute, out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(bundle, []byte("BEGIN CERTIFICATE")) {
		t.Errorf("got %q", bundle)
	}
}

// A writerFunc is called with every line.
type writerFunc func(line []byte)

// Write implements io.Writer.
func (f writerFunc) Write(line []byte) (int, error) {
	f(line)
	return len(line), nil
}
