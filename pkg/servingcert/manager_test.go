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

package servingcert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"
)

func mustEnsure(t *testing.T, m *Manager) Files {
	t.Helper()
	if err := m.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m.store.(Files)
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// contents returns the files' contents by name.
func contents(t *testing.T, files Files) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range []string{files.CAFile, files.caKeyFile, files.CertFile, files.KeyFile} {
		all[filepath.Base(path)] = string(mustRead(t, path))
	}
	return all
}

// mustServe shows that a client which trusts the authority given as PEM accepts the server under a name at some time.
func mustServe(t *testing.T, files Files, authority []byte, name string, now time.Time) {
	t.Helper()
	certificate, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatal("no certificate in the authority's file")
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	defer server.Close()
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: name, Time: func() time.Time { return now }}}
	connection, err := dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatalf("%s at %s: %v", name, now, err)
	}
	_ = connection.Close()
}

func TestClientsAcceptTheCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	files, err := Ensure(t.Context(), Directory(dir), "example.test", "192.0.2.7", "localhost", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"metacontroller-apiserver", "metacontroller-apiserver.metacontroller", "metacontroller-apiserver.metacontroller.svc",
		"localhost", "127.0.0.1", "::1", "example.test", "192.0.2.7",
	} {
		mustServe(t, files, mustRead(t, files.CAFile), name, time.Now())
	}
}

func TestKeysArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certificates")
	m := New(FilesIn(dir), Options{})
	files := mustEnsure(t, m)
	if err := os.Chmod(files.KeyFile, 0o644); err != nil {
		t.Fatal(err)
	}
	mustEnsure(t, m)
	for path, want := range map[string]os.FileMode{
		dir: 0o700, files.KeyFile: 0o600, files.caKeyFile: 0o600, files.CertFile: 0o644, files.CAFile: 0o644,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
	}
}

func TestGoodCertificatesAreKept(t *testing.T) {
	dir := t.TempDir()
	before := contents(t, mustEnsure(t, New(FilesIn(dir), Options{Hosts: []string{"one.test", "two.test"}})))
	after := contents(t, mustEnsure(t, New(FilesIn(dir), Options{Hosts: []string{"two.test"}})))
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s was made again", name)
		}
	}
}

func TestOnlyWhatIsNecessaryIsMadeAgain(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		hosts  []string
		later  time.Duration
		damage func(files Files) error
		want   []string
	}{
		"NewHost": {
			reason: "A client that uses the new name must be able to.",
			hosts:  []string{"new.test"},
			want:   []string{"tls.crt"},
		},
		"TwoThirdsOfLifeNotOver": {
			reason: "There is no need yet.",
			later:  59 * 24 * time.Hour,
		},
		"TwoThirdsOfLifeOver": {
			reason: "The last third is there for the case that renewing does not succeed.",
			later:  61 * 24 * time.Hour,
			want:   []string{"tls.crt"},
		},
		"Expired": {
			reason: "The machine may have been off for a year.",
			later:  365 * 24 * time.Hour,
			want:   []string{"tls.crt"},
		},
		"AuthorityExpiresSoon": {
			reason: "It must outlive what it signs. Its key stays.",
			later:  authorityLife - 30*24*time.Hour,
			want:   []string{"ca.crt", "tls.crt"},
		},
		"CertificateDamaged": {
			reason: "It can be made again without telling anybody.",
			damage: func(f Files) error { return os.WriteFile(f.CertFile, []byte("damaged"), 0o600) },
			want:   []string{"tls.crt"},
		},
		"MadeWhileTheClockWasAhead": {
			reason: "Clients would not accept it yet.",
			damage: func(f Files) error {
				ahead := clocktesting.NewFakeClock(time.Now().Add(10 * 24 * time.Hour))
				return New(f, Options{Hosts: []string{"ahead.test"}, Clock: ahead}).Ensure(t.Context())
			},
			want: []string{"tls.crt"},
		},
		"KeyMissing": {
			reason: "A certificate without its key is useless.",
			damage: func(f Files) error { return os.Remove(f.KeyFile) },
			want:   []string{"tls.crt", "tls.key"},
		},
		"KeyDamaged": {
			reason: "As if it were missing.",
			damage: func(f Files) error { return os.WriteFile(f.KeyFile, []byte("damaged"), 0o600) },
			want:   []string{"tls.crt", "tls.key"},
		},
		"AuthorityCertificateDamaged": {
			reason: "The key makes the authority, so the registration stays good.",
			damage: func(f Files) error { return os.Truncate(f.CAFile, 10) },
			want:   []string{"ca.crt"},
		},
		"EverythingMissing": {
			reason: "A new authority, for which the server must be registered again.",
			damage: func(f Files) error { return os.RemoveAll(filepath.Dir(f.CAFile)) },
			want:   []string{"ca.crt", "ca.key", "tls.crt", "tls.key"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := clocktesting.NewFakeClock(time.Now())
			dir := t.TempDir()
			files := mustEnsure(t, New(FilesIn(dir), Options{Clock: now}))
			before := contents(t, files)
			now.Step(test.later)
			if test.damage != nil {
				if err := test.damage(files); err != nil {
					t.Fatal(err)
				}
			}
			after := contents(t, mustEnsure(t, New(FilesIn(dir), Options{Clock: now, Hosts: test.hosts})))
			changed := map[string]bool{}
			for _, file := range test.want {
				changed[file] = true
			}
			for file, content := range before {
				if got := after[file] != content; got != changed[file] {
					t.Errorf("%s\n%s changed: %v, want %v", test.reason, file, got, changed[file])
				}
			}
			mustServe(t, files, mustRead(t, files.CAFile), "metacontroller-apiserver.metacontroller.svc", now.Now())
			if !changed["ca.key"] && test.later < authorityLife {
				mustServe(t, files, []byte(before["ca.crt"]), "localhost", now.Now())
			}
		})
	}
}

func TestNoAuthorityIsReplacedSilently(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		damage func(files Files) error
		want   string
	}{
		"KeyMissing": {
			reason: "The certificate is in a registration; another authority would make the server unavailable.",
			damage: func(f Files) error { return os.Remove(f.caKeyFile) },
			want:   "without its key",
		},
		"KeyDamaged": {
			reason: "As if it were missing.",
			damage: func(f Files) error { return os.WriteFile(f.caKeyFile, []byte("damaged"), 0o600) },
			want:   "restore the file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(FilesIn(t.TempDir()), Options{})
			files := mustEnsure(t, m)
			before := mustRead(t, files.CAFile)
			if err := test.damage(files); err != nil {
				t.Fatal(err)
			}
			if err := m.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s\ngot error %v, want %q in it", test.reason, err, test.want)
			}
			if !bytes.Equal(mustRead(t, files.CAFile), before) {
				t.Errorf("%s\nthe authority changed", test.reason)
			}
		})
	}
}

// TestKeysOfEarlierVersionsAreKept has a key in the form in which earlier versions wrote them.
func TestKeysOfEarlierVersionsAreKept(t *testing.T) {
	m := New(FilesIn(t.TempDir()), Options{})
	files := mustEnsure(t, m)
	for _, path := range []string{files.caKeyFile, files.KeyFile} {
		key, err := readKey(path)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := contents(t, files)
	for name, content := range contents(t, mustEnsure(t, m)) {
		if before[name] != content {
			t.Errorf("%s was made again", name)
		}
	}
	mustServe(t, files, mustRead(t, files.CAFile), "localhost", time.Now())
}

func TestConcurrentCallersAgree(t *testing.T) {
	dir := t.TempDir()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			files, err := Ensure(t.Context(), dir)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	mustServe(t, FilesIn(dir), mustRead(t, FilesIn(dir).CAFile), "localhost", time.Now())
}

func TestRunRenewsInTime(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Now())
	m := New(FilesIn(t.TempDir()), Options{Clock: now})
	files := mustEnsure(t, m)
	before := mustRead(t, files.CertFile)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	now.SetTime(now.Now().Add(certificateLife - 24*time.Hour))
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		// The ticker may not have been there when the time was set.
		now.Step(checkInterval)
		return !bytes.Equal(mustRead(t, files.CertFile), before), nil
	})
	if err != nil {
		t.Fatalf("certificate was not renewed: %v", err)
	}
	cancel()
	<-ended
	mustServe(t, files, mustRead(t, files.CAFile), "localhost", now.Now())
}

func TestUnusableDirectoryIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(t.Context(), file); err == nil {
		t.Error("made certificates in a file")
	}
}

func TestNamesAreSorted(t *testing.T) {
	authority, err := newAuthority(nil, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"a", "127.0.0.1", "", "a", "::1", "127.0.0.1", "*.b"}
	p, err := newCertificate(nil, hosts, *authority, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if n := p.certificate; len(n.DNSNames) != 2 || len(n.IPAddresses) != 2 || !n.IPAddresses[0].Equal(net.IPv4(127, 0, 0, 1)) {
		t.Errorf("got %v and %v", n.DNSNames, n.IPAddresses)
	}
	if !covers(p.certificate, hosts) || covers(p.certificate, append(hosts, "c")) || covers(p.certificate, append(hosts, "::2")) {
		t.Error("the certificate must be valid for these hosts, and no others")
	}
}
