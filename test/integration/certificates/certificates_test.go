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

// Package certificates replaces the certificates and the authorities of running servers while many requests come through the
// kube-apiserver, and counts how these end. None may fail.
package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/tcpproxy"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// TestReplicasReplaceTheirAuthorityUnderLoad has two replicas at one port, one with HTTP/2 and one without, whose certificates are
// replaced every two seconds and whose authority every fifteen. They are valid for much longer, so that a slow machine is no reason to fail.
func TestReplicasReplaceTheirAuthorityUnderLoad(t *testing.T) {
	c := cluster.Shared(t)
	const secret = "authority"
	namespace := c.Namespace(t)
	args := []string{
		"--etcd-servers", c.EtcdServers, "--etcd-prefix", "/test-certificates", "--permit-port-sharing",
		"--serving-cert-secret", namespace + "/" + secret,
		"--serving-cert-duration=1h", "--serving-cert-renew-before=59m58s",
		"--serving-ca-duration=100h", "--serving-ca-renew-before=99h59m55s", "--serving-ca-propagation=10s",
	}
	authority := []string{"--ca-secret", namespace + "/" + secret}
	first := server.Start(t, c, server.Options{Args: args, Authority: authority})
	server.Start(t, c, server.Options{Args: append([]string{"--disable-http2-serving"}, args...), Authority: authority, Port: first.Port()})
	p := tcpproxy.Start(t, fmt.Sprintf("127.0.0.1:%d", first.Port()))
	stored, err := cluster.NewClients(t, c.Config(t)).Kube.CoreV1().Secrets(namespace).Get(t.Context(), secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	register(t, c, p.Port(), stored.Data[servingcert.AuthoritiesKey])

	l := begin(t, c, first.Port())
	wanted := report.Pick(2, 12)
	cluster.Eventually(t, limit*4, fmt.Sprintf("%d authorities to be replaced, and certificates of one of them", wanted),
		func(context.Context) (bool, string) {
			certificates, authorities, most := l.seen()
			// There are two replicas: with three certificates one of them has renewed its own.
			return authorities > wanted && most > 2, fmt.Sprintf("%d certificates, %d authorities, %d of one", certificates, authorities, most)
		})
	l.judge(t, p.Opened())
	page, err := first.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const metric = "metacontroller_serving_certificate_expiration_timestamp_seconds"
	if end, ok := page.Value(metric); !ok {
		t.Errorf("%s is not served", metric)
	} else {
		t.Logf("%s is %s", metric, strconv.FormatFloat(end, 'f', 0, 64))
	}
}

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
	trust, err := registration.NewTrust(c.Config(t), types.NamespacedName{})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(bundle []byte) {
		t.Helper()
		if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			_, version, err := trust.Trusted(t.Context())
			if err != nil {
				return err
			}
			return trust.Trust(t.Context(), bundle, version)
		}); err != nil {
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

// name is that of the Secret in the manifests.
const name = "metacontroller-apiserver-authority"

// newOverlay returns the folder of a kustomization as the documentation has it.
func newOverlay(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	artifacts, err := filepath.Rel(folder, filepath.Join(cluster.Root(), "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- %[1]s/base\n"+
		"components:\n- %[1]s/components/external-etcd\n- %[1]s/components/shared-authority\n", artifacts)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestReplicasKeepTheirAuthorityWithTheRightsOfTheManifests lets replicas act as the service account of the manifests, which may read
// and write one Secret and one APIService. The clock is the test's, so that years pass.
func TestReplicasKeepTheirAuthorityWithTheRightsOfTheManifests(t *testing.T) {
	c := cluster.Start(t)
	overlay := newOverlay(t)
	c.Kubectl(t, "apply", "--server-side", "-k", overlay)
	// As the server does that registers itself.
	c.Kubectl(t, "apply", "--server-side", "-f", filepath.Join(cluster.Root(), "artifacts", "base", "apiservice.yaml"))
	args := c.Kubectl(t, "-n", "metacontroller", "get", "deployment", "metacontroller-apiserver", "-o", "jsonpath={.spec.template.spec.containers[0].args}")
	if want := "--serving-cert-secret=metacontroller/" + name; !strings.Contains(args, want) {
		t.Errorf("the server is started with %s, want %s", args, want)
	}
	// Without the controllers' rights, which are everything.
	c.Kubectl(t, "delete", "clusterrolebinding", "metacontroller-controllers")

	config := c.Config(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:metacontroller:metacontroller-apiserver"}
	client := cluster.NewClients(t, config).Kube.CoreV1().Secrets("metacontroller")
	trust, err := registration.NewTrust(config, types.NamespacedName{Namespace: "metacontroller", Name: "metacontroller-apiserver"})
	if err != nil {
		t.Fatal(err)
	}
	now := clocktesting.NewFakeClock(time.Now())
	replica := func(name string) *servingcert.Manager {
		return servingcert.New(servingcert.NewSecret(name, client), servingcert.Options{Registration: trust, Clock: now})
	}
	cluster.Eventually(t, cluster.Limit, "the rights to be known", func(ctx context.Context) (bool, string) {
		_, _, err := trust.Trusted(ctx)
		return err == nil, "the APIService cannot be read"
	})
	if err := replica("another").Ensure(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("got %v for another Secret, want it forbidden", err)
	}

	replicas := []*servingcert.Manager{replica(name), replica(name), replica(name), replica(name)}
	ensure := func() {
		t.Helper()
		var all sync.WaitGroup
		for _, r := range replicas {
			all.Go(func() {
				if err := r.Ensure(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	trusted := func() string {
		t.Helper()
		bundle, _, err := trust.Trusted(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(bundle)
	}
	authorities := func(n int) {
		t.Helper()
		// Replicas that write at the same time may have to try again.
		cluster.Eventually(t, cluster.Limit, "another number of authorities to be trusted", func(context.Context) (bool, string) {
			ensure()
			return strings.Count(trusted(), "BEGIN CERTIFICATE") == n, trusted()
		})
	}
	authorities(1)
	first := trusted()
	// The registration is that of this server, and none of one that has another Service, whose authority is another one, too.
	elsewhere, err := registration.NewTrust(config, types.NamespacedName{Namespace: "elsewhere", Name: "metacontroller-apiserver"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := elsewhere.Trusted(t.Context()); !errors.Is(err, servingcert.ErrNotRegistered) {
		t.Errorf("got %v for the registration of another server, want that there is none", err)
	}
	// Applying the manifests again is no reason for another one.
	c.Kubectl(t, "apply", "--server-side", "-k", overlay)
	authorities(1)
	if trusted() != first {
		t.Error("applying the manifests again has changed the authority")
	}
	now.Step(7 * 365 * 24 * time.Hour)
	authorities(2)
	now.Step(2 * time.Hour)
	authorities(2)
	now.Step(91 * 24 * time.Hour)
	authorities(1)
	if trusted() == first {
		t.Error("the authority was not replaced")
	}
	// On demand.
	c.Kubectl(t, "-n", "metacontroller", "annotate", "secret", name, servingcert.RotateAnnotation+"=now")
	authorities(2)
	left := c.Kubectl(t, "-n", "metacontroller", "get", "secret", name, "-o", "jsonpath={.metadata.annotations}")
	if strings.Contains(left, servingcert.RotateAnnotation) {
		t.Errorf("the annotation is still there: %s", left)
	}
}

const (
	// serviceName is the name that the aggregation layer expects in the server's certificate.
	serviceName = "metacontroller-apiserver.metacontroller.svc"
	// burst is how many requests are made at the same time: more than the kube-apiserver keeps idle HTTP/1.1 connections, so that
	// some are closed after each burst, and opened in the next one.
	burst = 40
	// limit is for everything that is waited for.
	limit = cluster.Limit
)

// enough is how many requests are made at least.
func enough() int { return report.Pick(500, 5000) }

// A load makes requests until it is stopped, through the kube-apiserver and to the server itself, and counts their outcomes.
type load struct {
	cluster *cluster.Cluster
	client  *versioned.Clientset
	trust   *registration.Trust
	address string

	mu       sync.Mutex
	outcomes map[string]int
	// served are the certificates that were served, by those of their authorities; all by their serial numbers.
	served map[string]map[string]bool

	stop    context.CancelFunc
	running sync.WaitGroup
}

// begin starts the load on a server that listens at a port of this machine.
func begin(t *testing.T, c *cluster.Cluster, port int) *load {
	t.Helper()
	config := c.Config(t)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := registration.NewTrust(config, types.NamespacedName{})
	if err != nil {
		t.Fatal(err)
	}
	l := &load{
		cluster: c, client: client, trust: trust, address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		outcomes: map[string]int{}, served: map[string]map[string]bool{},
	}
	c.KubectlInput(t, controller("load"), "create", "-f", "-")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Limit)
		defer cancel()
		if err := client.MetacontrollerV1alpha1().CompositeControllers().Delete(ctx, "load", metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting what the load was about: %v", err)
		}
	})
	ending, stop := context.WithCancel(t.Context())
	l.stop = stop
	l.running.Go(func() { l.proxied(t.Context(), ending) })
	l.running.Go(func() { l.direct(t.Context(), ending) })
	t.Cleanup(l.end)
	return l
}

// controller is one that does nothing.
func controller(name string) string {
	return fmt.Sprintf(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":%q},"spec":{
		"paused":true,"parentResource":{"apiVersion":"v1","resource":"configmaps"},
		"hooks":{"sync":{"webhook":{"url":"https://hook.example.com/sync"}}}}}`, name)
}

// end stops the load and waits for the requests that were begun.
func (l *load) end() {
	l.stop()
	l.running.Wait()
}

// proxied makes bursts of requests of several kinds through the kube-apiserver.
func (l *load) proxied(ctx, ending context.Context) {
	for round := 0; ending.Err() == nil; round++ {
		var requests sync.WaitGroup
		for i := range burst {
			requests.Go(func() { l.one(ctx, round, i) })
		}
		requests.Wait()
	}
}

func (l *load) one(ctx context.Context, round, i int) {
	var kind string
	client := l.client.MetacontrollerV1alpha1().RESTClient()
	var request *rest.Request
	switch {
	case i == 0:
		kind = "patch"
		request = client.Patch(types.MergePatchType).Resource("compositecontrollers").Name("load").
			Body(fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}}}`, round))
	case i%4 == 1:
		kind = "create"
		request = client.Post().Resource("compositecontrollers").Param("dryRun", "All").SetHeader("Content-Type", "application/json").
			Body([]byte(controller(fmt.Sprintf("load-%d", i))))
	case i%4 == 2:
		kind = "get"
		request = client.Get().Resource("compositecontrollers").Name("load")
	default:
		kind = "list"
		request = client.Get().Resource("controllerrevisions")
	}
	// Nothing is tried again: the first answer counts.
	err := request.MaxRetries(0).Do(ctx).Error()
	if ctx.Err() == nil {
		l.count("kube-apiserver "+kind, err)
	}
}

// direct opens a connection for every request, as a kube-apiserver does that has none, and trusts whom the APIService says now.
func (l *load) direct(ctx, ending context.Context) {
	for ending.Err() == nil {
		if err := l.handshake(ctx); ctx.Err() == nil {
			l.count("new connection", err)
		}
	}
}

func (l *load) handshake(ctx context.Context) error {
	bundle, _, err := l.trust.Trusted(ctx)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("the APIService trusts nobody")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: serviceName}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.address+"/version", http.NoBody)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	chain := response.TLS.VerifiedChains[0]
	authority := chain[len(chain)-1].SerialNumber.String()
	if l.served[authority] == nil {
		l.served[authority] = map[string]bool{}
	}
	l.served[authority][chain[0].SerialNumber.String()] = true
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func (l *load) count(what string, err error) {
	outcome := what + ": answered"
	if err != nil {
		outcome = fmt.Sprintf("%s: FAILED: %s %v", what, apierrors.ReasonForError(err), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes[outcome]++
}

// seen returns how many certificates were served so far, by how many authorities they were signed, and the most by one of these.
func (l *load) seen() (certificates, authorities, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ofOne := range l.served {
		certificates += len(ofOne)
		most = max(most, len(ofOne))
	}
	return certificates, len(l.served), most
}

// total returns how many requests have ended.
func (l *load) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0
	for _, n := range l.outcomes {
		total += n
	}
	return total
}

// judge stops the load when enough requests were made to say anything, and fails the test if one has failed.
func (l *load) judge(t *testing.T, opened int) {
	t.Helper()
	cluster.Eventually(t, limit, "enough requests", func(context.Context) (bool, string) {
		total := l.total()
		return total >= enough(), fmt.Sprintf("%d requests", total)
	})
	l.end()
	certificates, authorities, _ := l.seen()
	total, failed := 0, 0
	for _, outcome := range slices.Sorted(maps.Keys(l.outcomes)) {
		n := l.outcomes[outcome]
		total += n
		if strings.Contains(outcome, "FAILED") {
			failed += n
			t.Errorf("%6d × %s", n, outcome)
		} else {
			t.Logf("%6d × %s", n, outcome)
		}
	}
	report.For(t, report.CertificateTurn).Sayf("%d requests, %d failed; the kube-apiserver opened %d connections; %d certificates of %d authorities were served",
		total, failed, opened, certificates, authorities)
}

// register has the kube-apiserver reach the server at a port. Whom it trusts stays.
func register(t *testing.T, c *cluster.Cluster, port int, bundle []byte) {
	t.Helper()
	if err := registration.Register(t.Context(), registration.Options{
		Config: c.Config(t), Host: "localhost", Port: port, CABundle: bundle, Timeout: limit, Progress: t.Output(),
	}); err != nil {
		t.Fatal(err)
	}
}
