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
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVersionsAreJudged(t *testing.T) {
	for version, want := range map[string]struct {
		result  Result
		message string
	}{
		"v1.28.15":          {Failed, "too old: 1.29 and later"},
		"v1.29.0":           {Warning, "works harder when the server starts than 1.31"},
		"v1.30.5-eks-1":     {Warning, "works harder"},
		"v1.31.0":           {OK, "Kubernetes v1.31.0 is supported."},
		"v1.36.3":           {OK, "is supported"},
		"v1.37.9+k3s1":      {OK, "is supported"},
		"v1.38.0":           {Warning, "newer than this server, whose libraries are those of 1.37"},
		"built yesterday":   {Warning, "cannot be read"},
		"v1.33.1-gke.15400": {OK, "is supported"},
	} {
		if got := judgeVersion(version); got.Result != want.result || !strings.Contains(got.Message, want.message) {
			t.Errorf("%s: got %+v, want %s and %q", version, got, want.result, want.message)
		}
	}
}

func TestTheAggregationLayerIsJudged(t *testing.T) {
	files, err := servingcert.Ensure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	authority := read(t, files.CAFile)
	for name, test := range map[string]struct {
		data  map[string]string
		worst Result
		want  string
	}{
		"as it should be":    {map[string]string{proxyAuthorityKey: authority, clientAuthorityKey: "another", allowedNamesKey: `["front-proxy-client"]`}, OK, "is set up"},
		"users of no others": {map[string]string{proxyAuthorityKey: authority}, OK, "is set up"},
		"one authority and names": {
			map[string]string{proxyAuthorityKey: authority, clientAuthorityKey: authority, allowedNamesKey: `["front-proxy-client"]`}, OK, "is set up",
		},
		"one authority":          {map[string]string{proxyAuthorityKey: authority, clientAuthorityKey: authority, allowedNamesKey: `[]`}, Warning, "can be anybody"},
		"not set up":             {map[string]string{clientAuthorityKey: authority}, Failed, "every user would be anonymous"},
		"nothing of a PEM in it": {map[string]string{proxyAuthorityKey: "none"}, Failed, "every user would be anonymous"},
	} {
		t.Run(name, func(t *testing.T) {
			report := newReport(judgeAggregation(&corev1.ConfigMap{Data: test.data}))
			last := report.Findings[len(report.Findings)-1]
			if report.Result != test.worst || !strings.Contains(last.Message, test.want) {
				t.Errorf("got %+v, want %s and %q", report, test.worst, test.want)
			}
			if report.Result != OK && last.Next == "" {
				t.Error("nobody says what to do")
			}
		})
	}
}

func TestWhatServesTheGroupIsJudged(t *testing.T) {
	own := registration.Existing{Registered: true, ServiceNamespace: "metacontroller", ServiceName: "metacontroller-apiserver"}
	available, other := own, own
	available.Available = true
	other.ServiceName = "wardle"
	for name, test := range map[string]struct {
		existing *registration.Existing
		result   Result
		want     string
	}{
		"nothing":              {&registration.Existing{}, OK, "Nothing serves metacontroller.k8s.io"},
		"this server":          {&available, OK, "registered already, and available"},
		"this server, down":    {&own, Warning, "is not available"},
		"another server":       {&other, Failed, "belongs to another server: Service wardle in namespace metacontroller"},
		"definitions":          {&registration.Existing{Definitions: []string{"compositecontrollers.metacontroller.k8s.io"}}, Failed, "CustomResourceDefinitions serve"},
		"definitions that go":  {&registration.Existing{Registered: true, ByDefinitions: true}, Failed, "that are being deleted"},
		"definitions and more": {&registration.Existing{Definitions: []string{"a"}, Registered: true, ByDefinitions: true}, Failed, "CustomResourceDefinitions serve"},
	} {
		t.Run(name, func(t *testing.T) {
			got := judgeExisting(test.existing, "metacontroller", "metacontroller-apiserver")
			if got.Result != test.result || !strings.Contains(got.Message, test.want) {
				t.Errorf("got %+v, want %s and %q", got, test.result, test.want)
			}
			if got.Result != OK && got.Next == "" {
				t.Error("nobody says what to do")
			}
		})
	}
}

func TestMetacontrollerIsKnownByItsImage(t *testing.T) {
	one, none := int32(1), int32(0)
	for image, want := range map[string]bool{
		"example.org/metacontroller/metacontroller:v4.17.2": true,
		"metacontrollerio/metacontroller":                   true,
		"registry:5000/mirror/metacontroller@sha256:0":      true,
		"example.org/metacontroller-apiserver:v1":           false,
		"example.org/metacontroller/hooks:v1":               false,
		"example.org/metacontroller/nodejs-server:latest":   false,
		"example.org/metacontroller/jsonnetd:0.1":           false,
		"example.org/not-metacontroller:v1":                 false,
	} {
		if got := runsMetacontroller(&one, []corev1.Container{{Image: "other"}, {Image: image}}); got != want {
			t.Errorf("%s: got %t", image, got)
		}
		if runsMetacontroller(&none, []corev1.Container{{Image: image}}) {
			t.Errorf("%s is said to run without replicas", image)
		}
	}
}

func TestRightsAreWrittenForPeople(t *testing.T) {
	rules := []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"namespaces"}},
		{Verbs: []string{"patch"}, APIGroups: []string{"flowcontrol.apiserver.k8s.io"}, Resources: []string{"flowschemas/status"}},
		{Verbs: []string{"create", "get"}, APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, ResourceNames: []string{"v1.a", "v1.b"}},
	}
	got := rights.Lines(expand(rules, ""))
	want := []string{
		"get, list namespaces",
		"patch flowschemas.flowcontrol.apiserver.k8s.io/status",
		"create, get apiservices.apiregistration.k8s.io v1.a",
		"create, get apiservices.apiregistration.k8s.io v1.b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := rights.Lines(expand(rules[:1], "kube-system")); !slices.Equal(got, []string{"get, list namespaces in namespace kube-system"}) {
		t.Errorf("got %q", got)
	}
}

// TestRightsOfTheEngine asks for what a server needs whose ClusterRole names its kinds.
func TestRightsOfTheEngine(t *testing.T) {
	all, err := roles("ns", "metacontroller-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(r role) bool { return r.check == "rights-engine" })
	asked := rights.Lines(expand(all[i].rules, ""))
	for _, want := range []string{"get serviceaccounts", "get services", "list endpointslices.discovery.k8s.io", "get, list, watch secrets"} {
		if !slices.Contains(asked, want) {
			t.Errorf("%q is not among %q", want, asked)
		}
	}
}

func TestTheRolesHaveTheNameOfTheService(t *testing.T) {
	for _, name := range []string{"metacontroller-apiserver", "mc"} {
		all, err := roles("ns", name)
		if err != nil {
			t.Fatal(err)
		}
		if read := "get clusterroles.rbac.authorization.k8s.io " + name; !slices.Contains(rights.Lines(expand(all[0].rules, "")), read) {
			t.Errorf("%q is not among %q", read, rights.Lines(expand(all[0].rules, "")))
		}
		if want := "ClusterRole " + name; all[0].name != want {
			t.Errorf("the role is %q, want %q", all[0].name, want)
		}
		last := all[len(all)-1]
		if want := "Role " + name + ":leader-election in ns"; last.name != want || !strings.Contains(last.give, " --role="+name+":leader-election ") {
			t.Errorf("the role is %q, given by %q, want %q", last.name, last.give, want)
		}
	}
}

// An address is told to be without encryption if the client of etcd uses none for it.
func TestAddressesWithoutEncryption(t *testing.T) {
	for _, tc := range []struct {
		server       string
		files, plain bool
	}{
		{"http://etcd:2379", false, true},
		{"http://etcd:2379", true, true},
		{"HTTP://etcd:2379", true, true},
		{"etcd:2379", false, true},
		{"etcd:2379", true, false},
		{"https://etcd:2379", false, false},
		{"https://etcd:2379", true, false},
		{"unix:///run/etcd", false, false},
		{"unix:run/etcd", false, false},
	} {
		var encryption *tls.Config
		if tc.files {
			encryption = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if got := isPlain(tc.server, encryption); got != tc.plain {
			t.Errorf("%s, with files: %t: got %t", tc.server, tc.files, got)
		}
	}
}

const serviceHost = "metacontroller-apiserver.metacontroller.svc"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// issue writes a certificate that signs itself, and its key.
func issue(t *testing.T, template *x509.Certificate) certificateFiles {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(365 * 24 * time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	files := certificateFiles{cert: filepath.Join(folder, "tls.crt"), key: filepath.Join(folder, "tls.key")}
	for path, block := range map[string]*pem.Block{files.cert: {Type: "CERTIFICATE", Bytes: der}, files.key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestCertificatesAreJudged(t *testing.T) {
	made, err := servingcert.Ensure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own := certificateFiles{cert: made.CertFile, key: made.KeyFile, authority: made.CAFile}
	named := []string{serviceHost}
	another := issue(t, &x509.Certificate{DNSNames: named})
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(f certificateFiles, authority string) certificateFiles {
		f.authority = authority
		return f
	}
	for name, test := range map[string]struct {
		files  certificateFiles
		bundle string
		later  time.Duration
		result Result
		want   string
	}{
		"the server's own":      {files: own, result: OK, want: "has its key, is valid for " + serviceHost},
		"no authority is known": {files: another, result: OK, want: "is valid for"},
		"the key of another":    {files: certificateFiles{cert: own.cert, key: another.key}, result: Failed, want: "are no certificate with its key"},
		"no file":               {files: certificateFiles{cert: "none", key: "none"}, result: Failed, want: "no such file"},
		"another name":          {files: issue(t, &x509.Certificate{DNSNames: []string{"example.org"}}), result: Failed, want: "is not valid for " + serviceHost},
		"no name":               {files: issue(t, &x509.Certificate{}), result: Failed, want: "is not valid for " + serviceHost},
		"expired":               {files: own, later: 91 * 24 * time.Hour, result: Failed, want: " is valid from "},
		"not valid yet":         {files: own, later: -48 * time.Hour, result: Failed, want: " is valid from "},
		"about to expire":       {files: own, later: 84 * 24 * time.Hour, result: Warning, want: " expires at "},
		"another authority":     {files: with(own, another.cert), result: Failed, want: "is not accepted by clients that trust " + another.cert},
		"an authority of the APIService": {
			files: with(own, ""), bundle: read(t, another.cert), result: Failed, want: "clients that trust the caBundle of the APIService",
		},
		"an empty authority": {files: with(another, empty), result: Failed, want: "holds no certificate"},
		"no authority there": {files: with(another, "none"), result: Failed, want: "Reading the certificate authority"},
		"for clients": {
			files: func() certificateFiles {
				f := issue(t, &x509.Certificate{DNSNames: named, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true})
				return with(f, f.cert)
			}(),
			result: Failed, want: "incompatible key usage",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.files.check(serviceHost, []byte(test.bundle), time.Now().Add(test.later))[0]
			if got.Result != test.result || !strings.Contains(got.Message, test.want) {
				t.Errorf("got %+v, want %s and %q", got, test.result, test.want)
			}
			if got.Result != OK && got.Next == "" {
				t.Error("nobody says what to do")
			}
		})
	}
}

func TestCertificatesOfADataDirectoryAreFound(t *testing.T) {
	o := options{namespace: "metacontroller", service: "metacontroller-apiserver", dataDir: t.TempDir()}
	if got := o.certificates(nil, time.Now())[0]; got.Result != Skipped {
		t.Errorf("without a certificate: got %+v", got)
	}
	if _, err := servingcert.Ensure(t.Context(), servingcert.Directory(o.dataDir)); err != nil {
		t.Fatal(err)
	}
	if got := o.certificates(nil, time.Now())[0]; got.Result != OK {
		t.Errorf("with the server's own: got %+v", got)
	}
}

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
