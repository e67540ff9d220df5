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

package certificates

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/tcpproxy"
)

// A volume is a folder with a certificate and its key, as the kubelet mounts a Secret: the files are links into a folder that is
// replaced at once.
type volume struct {
	t    *testing.T
	path string
	next int
}

// show replaces the files.
func (v *volume) show(files servingcert.Files) {
	v.t.Helper()
	v.next++
	content := fmt.Sprintf("..content-%d", v.next)
	if err := os.Mkdir(filepath.Join(v.path, content), 0o700); err != nil {
		v.t.Fatal(err)
	}
	for name, source := range map[string]string{"tls.crt": files.CertFile, "tls.key": files.KeyFile} {
		if err := os.WriteFile(filepath.Join(v.path, content, name), read(v.t, source), 0o600); err != nil {
			v.t.Fatal(err)
		}
		if v.next == 1 {
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(v.path, name)); err != nil {
				v.t.Fatal(err)
			}
		}
	}
	if err := os.Symlink(content, filepath.Join(v.path, "..data_tmp")); err != nil {
		v.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(v.path, "..data_tmp"), filepath.Join(v.path, "..data")); err != nil {
		v.t.Fatal(err)
	}
	if v.next > 1 {
		if err := os.RemoveAll(filepath.Join(v.path, fmt.Sprintf("..content-%d", v.next-1))); err != nil {
			v.t.Fatal(err)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// made returns certificates of an authority in a folder, or of a new one.
func made(t *testing.T, folder string) servingcert.Files {
	t.Helper()
	files, err := servingcert.Ensure(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestFilesAreReadAgainUnderLoad replaces certificate, key and authority of a server as cert-manager and the kubelet do.
func TestFilesAreReadAgainUnderLoad(t *testing.T) {
	c := cluster.Shared(t)
	folder := t.TempDir()
	files := made(t, folder)
	v := &volume{t: t, path: t.TempDir()}
	v.show(files)
	s := server.Start(t, c, server.Options{
		Args: []string{
			"--tls-cert-file", filepath.Join(v.path, "tls.crt"), "--tls-private-key-file", filepath.Join(v.path, "tls.key"), "--disable-http2-serving",
		},
		Authority: []string{"--ca-file", files.CAFile},
	})
	p := tcpproxy.Start(t, fmt.Sprintf("127.0.0.1:%d", s.Port()))
	first := read(t, files.CAFile)
	register(t, c, p.Port(), first)
	l := begin(t, c, s.Port())
	served := func(certificates, authorities int) {
		t.Helper()
		cluster.Eventually(t, limit, fmt.Sprintf("%d certificates of %d authorities to be served", certificates, authorities),
			func(context.Context) (bool, string) {
				gotCertificates, gotAuthorities, _ := l.seen()
				return gotCertificates == certificates && gotAuthorities == authorities, fmt.Sprintf("%d of %d", gotCertificates, gotAuthorities)
			})
	}
	served(1, 1)

	// The next certificate of the same authority, with another key.
	for _, path := range []string{files.CertFile, files.KeyFile} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	v.show(made(t, folder))
	served(2, 1)

	// Another authority: it is trusted before it signs, and the former one for as long as its certificates are served.
	others := made(t, t.TempDir())
	second := read(t, others.CAFile)
	publish := func(bundle []byte) {
		t.Helper()
		if err := registration.PublishAuthority(t.Context(), c.Config(t), bundle); err != nil {
			t.Fatal(err)
		}
		settle(t, l)
	}
	publish(slices.Concat(first, second))
	v.show(others)
	served(3, 2)
	publish(second)
	l.judge(t, p.Opened())
}

// settle waits for two more bursts, so that the kube-apiserver has seen what was written before.
func settle(t *testing.T, l *load) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.outcomes["kube-apiserver patch: answered"]
	}
	before := count()
	cluster.Eventually(t, limit, "two more bursts", func(context.Context) (bool, string) { return count() >= before+3, "" })
}
