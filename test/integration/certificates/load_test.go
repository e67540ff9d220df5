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
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
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

	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
)

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
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
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
