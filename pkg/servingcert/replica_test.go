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
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A cluster is the Secret and the registration in memory, both with versions as an API server has them. What the API server makes of
// the same requests is tested in test/integration/certificates.
type cluster struct {
	corev1client.SecretInterface

	mu      sync.Mutex
	version int
	secret  *corev1.Secret
	// trusted has the bundles since the beginning, the present one last. It is empty as long as there is no registration.
	trusted    []publication
	registered bool
	clock      *clocktesting.FakeClock
	// fail is asked before each request, and may be nil.
	fail func(request string) error
}

// state is what is in the Secret.
func (c *cluster) state(t *testing.T) *authorities {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	state, err := decode(c.secret)
	if err != nil || state.signing.certificate == nil {
		t.Fatalf("reading the Secret: %v, %v", state, err)
	}
	return state
}

// A replica is one of several servers.
type replica struct {
	*Manager
	*Secret
}

func (c *cluster) replica(l Lifetimes) *replica {
	s := NewSecret(secretName, c)
	return &replica{Manager: New(s, Options{Registration: c, Lifetimes: l, Clock: c.clock}), Secret: s}
}

func mustSync(t *testing.T, replicas ...*replica) {
	t.Helper()
	for _, r := range replicas {
		if _, err := r.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// accepted tells whether a client that trusts a bundle accepts what the replica serves.
func accepted(r *replica, bundle []byte, now time.Time) error {
	certificate, key := r.CurrentCertKeyContent()
	if _, err := tls.X509KeyPair(certificate, key); err != nil {
		return err
	}
	served, err := cert.ParseCertsPEM(certificate)
	if err != nil {
		return err
	}
	roots, err := cert.NewPoolFromBytes(bundle)
	if err != nil {
		return err
	}
	_, err = served[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: serviceName, CurrentTime: now})
	return err
}

func TestReplicasShareTheAuthorityThatTheFirstOneMade(t *testing.T) {
	c := newCluster()
	replicas := make([]*replica, 8)
	var starting sync.WaitGroup
	for i := range replicas {
		replicas[i] = c.replica(DefaultLifetimes())
		starting.Go(func() {
			if err := replicas[i].Ensure(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	mustSync(t, replicas...)
	if views := c.views(0); len(views) != 1 || strings.Count(string(views[0]), "BEGIN CERTIFICATE") != 1 {
		t.Fatalf("the cluster trusts %s, want one authority", views)
	}
	keys := map[string]bool{}
	for _, r := range replicas {
		if err := accepted(r, c.views(0)[0], c.clock.Now()); err != nil {
			t.Error(err)
		}
		_, key := r.CurrentCertKeyContent()
		keys[string(key)] = true
	}
	if len(keys) != len(replicas) {
		t.Errorf("%d replicas have %d keys", len(replicas), len(keys))
	}
}

// TestEveryServedCertificateIsTrusted lets replicas and time run at random, with requests that fail, replicas that start again, and
// operators who want another authority. Whatever is served at any moment is accepted by each kube-apiserver that learns of changes
// within the time for propagation.
func TestEveryServedCertificateIsTrusted(t *testing.T) {
	const seeds, moments = 6, 300
	rotations, restarts := 0, 0
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := newCluster()
		l := Lifetimes{Certificate: 30 * time.Hour, Authority: 300 * time.Hour, Propagation: 5 * time.Hour}
		replicas := []*replica{c.replica(l), c.replica(l), c.replica(l)}
		mustSync(t, replicas...)
		signed := c.state(t).signing.certificate
		c.fail = func(request string) error {
			if random.IntN(4) == 0 {
				return apierrors.NewServiceUnavailable("the " + request + " did not succeed")
			}
			return nil
		}
		for range moments {
			c.clock.Step(time.Duration(random.IntN(120)) * time.Minute)
			switch i := random.IntN(len(replicas)); {
			case random.IntN(50) == 0:
				again := c.replica(l)
				if again.Ensure(t.Context()) == nil {
					replicas[i], restarts = again, restarts+1
				}
			case random.IntN(100) == 0:
				c.mu.Lock()
				metav1.SetMetaDataAnnotation(&c.secret.ObjectMeta, RotateAnnotation, "please")
				c.write(c.secret)
				c.mu.Unlock()
			}
			for _, i := range random.Perm(len(replicas)) {
				// It fails now and then; whoever runs it tries again.
				_, _ = replicas[i].sync(t.Context())
			}
			if now := c.state(t).signing.certificate; !now.Equal(signed) {
				signed, rotations = now, rotations+1
			}
			for i, r := range replicas {
				for _, view := range c.views(l.Propagation) {
					if err := accepted(r, view, c.clock.Now()); err != nil {
						t.Fatalf("seed %d: replica %d is not accepted: %v", seed, i, err)
					}
				}
			}
			if n := len(c.state(t).bundle()); n > 12 {
				t.Fatalf("seed %d: %d authorities are trusted", seed, n)
			}
		}
	}
	if rotations < seeds || restarts < seeds {
		t.Errorf("only %d rotations and %d restarts in %d histories", rotations, restarts, seeds)
	}
}

func TestTheAuthorityIsReplacedInSteps(t *testing.T) {
	c := newCluster()
	l := Lifetimes{Certificate: 30 * time.Hour, Authority: 300 * time.Hour, Propagation: 5 * time.Hour}
	r, other := c.replica(l), c.replica(l)
	mustSync(t, r, other)
	first := c.state(t)
	serial := func() string { return r.served.certificate.SerialNumber.String() }

	c.clock.Step(199 * time.Hour)
	mustSync(t, r)
	if c.state(t).next != nil {
		t.Fatal("the next authority is made too early")
	}
	c.clock.Step(2 * time.Hour)
	mustSync(t, r, other)
	state := c.state(t)
	if state.next == nil || !state.signing.certificate.Equal(first.signing.certificate) || !state.nextTrusted.Equal(c.clock.Now()) {
		t.Fatalf("after two thirds of the life there must be a next authority, trusted and not signing yet: %+v", state)
	}
	if n := strings.Count(string(c.views(0)[0]), "BEGIN CERTIFICATE"); n != 2 {
		t.Errorf("the cluster trusts %d authorities, want 2", n)
	}
	before := serial()
	c.clock.Step(4 * time.Hour)
	mustSync(t, r, other)
	if serial() != before {
		t.Error("another certificate is served before every kube-apiserver can have seen the next authority")
	}
	c.clock.Step(time.Hour)
	mustSync(t, r, other)
	state = c.state(t)
	if serial() == before || state.next != nil || len(state.former) != 1 || !signedBy(r.served.certificate, state.signing.certificate) {
		t.Fatalf("after the time for propagation the next authority must sign, and the former one be trusted: %+v", state)
	}
	c.clock.Step(l.Certificate + l.Propagation)
	mustSync(t, r, other)
	if len(c.state(t).former) != 1 {
		t.Error("the former authority was dropped while a late kube-apiserver may meet its certificates")
	}
	c.clock.Step(time.Second)
	mustSync(t, r, other)
	if n := strings.Count(string(c.views(0)[0]), "BEGIN CERTIFICATE"); n != 1 {
		t.Errorf("the cluster trusts %d authorities at the end, want 1", n)
	}
}

func TestTheTimeForPropagationBeginsAgainWhenSomebodyElseWritesTheRegistration(t *testing.T) {
	c := newCluster()
	l := Lifetimes{Certificate: 30 * time.Hour, Authority: 300 * time.Hour, Propagation: 5 * time.Hour}
	r := c.replica(l)
	mustSync(t, r)
	first := c.state(t).signing.certificate
	before, _, _ := c.Trusted(t.Context())
	c.clock.Step(201 * time.Hour)
	mustSync(t, r)
	c.clock.Step(4 * time.Hour)
	_, version, _ := c.Trusted(t.Context())
	if err := c.Trust(t.Context(), before, version); err != nil {
		t.Fatal(err)
	}
	c.clock.Step(time.Hour)
	mustSync(t, r)
	c.clock.Step(l.Propagation - time.Second)
	mustSync(t, r)
	if !c.state(t).signing.certificate.Equal(first) {
		t.Error("the next authority signs before every kube-apiserver can have seen it again")
	}
	c.clock.Step(time.Second)
	mustSync(t, r)
	if c.state(t).signing.certificate.Equal(first) {
		t.Error("the next authority does not sign")
	}
}

func TestNoAuthorityIsReplacedUnlessTheRegistrationCanBeWritten(t *testing.T) {
	c := newCluster()
	l := Lifetimes{Certificate: 30 * time.Hour, Authority: 300 * time.Hour, Propagation: 5 * time.Hour}
	r := c.replica(l)
	mustSync(t, r)
	signing := c.state(t).signing.certificate
	c.fail = func(request string) error {
		if request == "trust" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "apiservices"}, "ours", errors.New("not yours"))
		}
		return nil
	}
	for range 6 {
		c.clock.Step(40 * time.Hour)
		_, err := r.sync(t.Context())
		if late := c.clock.Now().After(signing.NotAfter.Add(-100 * time.Hour)); late && !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want to be told that the registration cannot be written", err)
		}
	}
	if !c.state(t).signing.certificate.Equal(signing) {
		t.Error("an authority signs that nobody trusts")
	}
	if err := accepted(r, c.views(0)[0], c.clock.Now()); err != nil {
		t.Errorf("what was trusted is not renewed: %v", err)
	}
}

func TestTheServerMayComeBeforeItsRegistration(t *testing.T) {
	c := newCluster()
	c.registered = false
	r := c.replica(DefaultLifetimes())
	if err := r.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.registered = true
	mustSync(t, r)
	if err := accepted(r, c.views(0)[0], c.clock.Now()); err != nil {
		t.Error(err)
	}
}

func TestWhomTheClusterTrustedItTrustsOn(t *testing.T) {
	c := newCluster()
	files := mustEnsure(t, New(FilesIn(t.TempDir()), Options{Clock: c.clock}))
	if err := c.Trust(t.Context(), mustRead(t, files.CAFile), "0"); err != nil {
		t.Fatal(err)
	}
	r := c.replica(DefaultLifetimes())
	mustSync(t, r)
	mustServe(t, files, c.views(0)[0], serviceName, c.clock.Now())
	c.clock.Step(certificateLife + 2*time.Hour)
	mustSync(t, r)
	if n := strings.Count(string(c.views(0)[0]), "BEGIN CERTIFICATE"); n != 1 {
		t.Errorf("%d authorities are trusted after the certificates of the first one have ended, want 1", n)
	}
}

func TestTheSecretIsTakenCareOf(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		damage func(c *cluster)
		// again starts the replica again, so that it remembers nothing.
		again bool
		// want is a part of the error, kept that the authority is the same one afterwards.
		want string
		kept bool
	}{
		"Untouched":        {reason: "There is nothing to do.", damage: func(*cluster) {}, kept: true},
		"DeletedWhileUsed": {reason: "Replicas know what was in it.", damage: func(c *cluster) { c.secret = nil }, kept: true},
		"EmptiedWhileUsed": {reason: "As if it were deleted.", damage: func(c *cluster) { c.secret.Data = nil; c.write(c.secret) }, kept: true},
		"DeletedWhileDown": {reason: "A new one, and the old one is trusted on.", damage: func(c *cluster) { c.secret = nil }, again: true},
		"KeyOfAnother": {
			reason: "Somebody mixed two Secrets up; nothing may be signed with this.", want: "do not belong together",
			damage: func(c *cluster) {
				another, _ := newAuthority(nil, time.Now(), time.Now())
				_, c.secret.Data[signingKeyKey], _ = another.encode()
				c.write(c.secret)
			},
		},
		"KeyDamaged": {
			reason: "It must not be replaced silently.", want: "restore it, or empty it", damage: func(c *cluster) {
				c.secret.Data[signingKeyKey] = []byte("damaged")
				c.write(c.secret)
			},
		},
		"TimeDamaged": {
			reason: "Somebody edited the annotation.", want: "reading annotation", damage: func(c *cluster) {
				c.secret.Annotations[signingSinceAnnotation] = "yesterday"
				c.write(c.secret)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			r := c.replica(DefaultLifetimes())
			mustSync(t, r)
			signing := c.state(t).signing.certificate
			test.damage(c)
			if test.again {
				r = c.replica(DefaultLifetimes())
			}
			_, err := r.sync(t.Context())
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s\ngot %v, want %q in it", test.reason, err, test.want)
				}
				if err := accepted(r, c.views(0)[0], c.clock.Now()); err != nil {
					t.Errorf("what was served is not served any more: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\n%v", test.reason, err)
			}
			if got := c.state(t).signing.certificate.Equal(signing); got != test.kept {
				t.Errorf("%s\nthe authority is the same one: %v, want %v", test.reason, got, test.kept)
			}
			if err := accepted(r, c.views(0)[0], c.clock.Now()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAReplicaRenewsUntilItIsStopped(t *testing.T) {
	c := newCluster()
	r := c.replica(DefaultLifetimes())
	listener := make(listener, 100)
	r.AddListener(listener)
	if err := r.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-listener
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	before, _ := r.CurrentCertKeyContent()
	c.clock.Step(certificateLife - time.Hour)
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		// The ticker may not have been there when the time was set.
		c.clock.Step(time.Minute)
		now, _ := r.CurrentCertKeyContent()
		return !bytes.Equal(now, before), nil
	})
	if err != nil {
		t.Fatalf("certificate was not renewed: %v", err)
	}
	<-listener
	cancel()
	<-ended
}

// A listener is told of changes.
type listener chan struct{}

// Enqueue implements dynamiccertificates.Listener.
func (l listener) Enqueue() { l <- struct{}{} }

func TestLifetimesAreValidated(t *testing.T) {
	hours := func(n int) time.Duration { return time.Duration(n) * time.Hour }
	for name, test := range map[string]struct {
		lifetimes Lifetimes
		want      string
	}{
		"Default":                 {lifetimes: DefaultLifetimes()},
		"Short":                   {lifetimes: Lifetimes{Certificate: hours(1), Authority: hours(4), Propagation: time.Minute}},
		"RenewedAtOnce":           {lifetimes: Lifetimes{Certificate: hours(1), CertificateRenewBefore: hours(1), Authority: hours(9)}, want: "a certificate of 1h0m0s cannot"},
		"AuthorityRenewedAtOnce":  {lifetimes: Lifetimes{Certificate: hours(1), Authority: hours(9), AuthorityRenewBefore: hours(9)}, want: "an authority of 9h0m0s cannot"},
		"NoLife":                  {lifetimes: Lifetimes{Authority: hours(9)}, want: "must be positive"},
		"NegativePropagation":     {lifetimes: Lifetimes{Certificate: hours(1), Authority: hours(9), Propagation: -1}, want: "must not be negative"},
		"AuthorityEndsBeforeSome": {lifetimes: Lifetimes{Certificate: hours(4), Authority: hours(9), Propagation: hours(1)}, want: "must be made 5h0m0s before"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.lifetimes.Validate()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestAChainEndsWithItsFirstCertificateThatEnds(t *testing.T) {
	c := newCluster()
	r := c.replica(DefaultLifetimes())
	mustSync(t, r)
	leaf, _ := r.CurrentCertKeyContent()
	end, ok := Expiration(fmt.Appendf(nil, "%s%s", c.views(0)[0], leaf))
	if !ok || !end.Equal(r.served.certificate.NotAfter) {
		t.Errorf("got %v %v, want %v", end, ok, r.served.certificate.NotAfter)
	}
	if _, ok := Expiration([]byte("nothing")); ok {
		t.Error("no certificate ends")
	}
}

const (
	secretName = "authority"
	// serviceName is the name that the aggregation layer expects in a certificate.
	serviceName = "metacontroller-apiserver.metacontroller.svc"
)

// A publication is what was trusted from a moment on.
type publication struct {
	since   time.Time
	version int
	bundle  []byte
}

func newCluster() *cluster {
	return &cluster{registered: true, clock: clocktesting.NewFakeClock(time.Now())}
}

func (c *cluster) begin(request string) error {
	c.mu.Lock()
	if c.fail == nil {
		return nil
	}
	return c.fail(request)
}

func (c *cluster) resource() schema.GroupResource { return schema.GroupResource{Resource: "secrets"} }

// Get implements corev1client.SecretInterface.
func (c *cluster) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Secret, error) {
	defer c.mu.Unlock()
	if err := c.begin("get"); err != nil {
		return nil, err
	}
	if c.secret == nil {
		return nil, apierrors.NewNotFound(c.resource(), name)
	}
	return c.secret.DeepCopy(), nil
}

// Create implements corev1client.SecretInterface.
func (c *cluster) Create(_ context.Context, secret *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	defer c.mu.Unlock()
	if err := c.begin("create"); err != nil {
		return nil, err
	}
	if c.secret != nil {
		return nil, apierrors.NewAlreadyExists(c.resource(), secret.Name)
	}
	return c.write(secret), nil
}

// Update implements corev1client.SecretInterface.
func (c *cluster) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	defer c.mu.Unlock()
	if err := c.begin("update"); err != nil {
		return nil, err
	}
	if c.secret == nil || c.secret.ResourceVersion != secret.ResourceVersion {
		return nil, apierrors.NewConflict(c.resource(), secret.Name, errors.New("another version"))
	}
	return c.write(secret), nil
}

func (c *cluster) write(secret *corev1.Secret) *corev1.Secret {
	c.version++
	c.secret = secret.DeepCopy()
	c.secret.ResourceVersion = strconv.Itoa(c.version)
	return c.secret.DeepCopy()
}

// Trusted implements Registration.
func (c *cluster) Trusted(context.Context) (bundle []byte, version string, err error) {
	defer c.mu.Unlock()
	if err := c.begin("trusted"); err != nil {
		return nil, "", err
	}
	if !c.registered {
		return nil, "", ErrNotRegistered
	}
	if len(c.trusted) == 0 {
		return nil, "0", nil
	}
	last := c.trusted[len(c.trusted)-1]
	return last.bundle, strconv.Itoa(last.version), nil
}

// Trust implements Registration.
func (c *cluster) Trust(_ context.Context, bundle []byte, version string) error {
	defer c.mu.Unlock()
	if err := c.begin("trust"); err != nil {
		return err
	}
	current := "0"
	if len(c.trusted) > 0 {
		current = strconv.Itoa(c.trusted[len(c.trusted)-1].version)
	}
	if version != current {
		return apierrors.NewConflict(schema.GroupResource{Resource: "apiservices"}, "ours", errors.New("another version"))
	}
	c.version++
	c.trusted = append(c.trusted, publication{since: c.clock.Now(), version: c.version, bundle: bundle})
	return nil
}

// views returns the bundles that a kube-apiserver may see that learns of changes within a time.
func (c *cluster) views(late time.Duration) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var views [][]byte
	for i, p := range c.trusted {
		if i+1 == len(c.trusted) || c.trusted[i+1].since.After(c.clock.Now().Add(-late)) {
			views = append(views, p.bundle)
		}
	}
	return views
}
