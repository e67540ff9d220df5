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
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// ErrNotRegistered is the error of a Registration that is not there yet.
var ErrNotRegistered = errors.New("the server is not registered at the cluster")

// Registration is where the cluster looks up whom it trusts as this server.
type Registration interface {
	// Trusted returns the certificates in PEM that the cluster trusts now, and the version of the registration. The error is
	// ErrNotRegistered if there is no registration.
	Trusted(ctx context.Context) (bundle []byte, version string, err error)
	// Trust has the cluster trust others, if the registration is still the one of that version, and else returns a conflict.
	Trust(ctx context.Context, bundle []byte, version string) error
}

// ReplicaOptions say for whom a Replica makes certificates. SecretName, Secrets and Registration are required.
type ReplicaOptions struct {
	// SecretName is the name of the Secret with the authority, and Secrets the client of its namespace.
	SecretName string
	Secrets    corev1client.SecretInterface
	// Registration is told whom to trust, before what they have signed is served.
	Registration Registration
	// Lifetimes must be valid. The zero value means DefaultLifetimes.
	Lifetimes Lifetimes
	// Hosts, ServiceName, ServiceNamespace and Clock are as in Options.
	Hosts                         []string
	ServiceName, ServiceNamespace string
	Clock                         clock.WithTicker
}

// A Replica keeps the serving certificate of one of several servers that share an authority. It is the content provider of the API
// server: dynamiccertificates.CertKeyContentProvider. It may be used from several goroutines.
type Replica struct {
	secretName   string
	secrets      corev1client.SecretInterface
	registration Registration
	lifetimes    Lifetimes
	names        names
	clock        clock.WithTicker

	// mu guards what follows.
	mu sync.Mutex
	// known is the last state that was read or written; it is what a deleted Secret is made again from.
	known *authorities
	// served is the serving certificate, signed by issuer; certificate and key are the same as PEM.
	served           *x509.Certificate
	issuer           *x509.Certificate
	certificate, key []byte
	listeners        []dynamiccertificates.Listener
}

var _ dynamiccertificates.CertKeyContentProvider = &Replica{}

// NewReplica returns a Replica. It does nothing before Ensure or Run is called.
func NewReplica(o ReplicaOptions) *Replica {
	if o.Lifetimes == (Lifetimes{}) {
		o.Lifetimes = DefaultLifetimes()
	}
	m := New(Options{Hosts: o.Hosts, ServiceName: o.ServiceName, ServiceNamespace: o.ServiceNamespace, Clock: o.Clock})
	return &Replica{
		secretName: o.SecretName, secrets: o.Secrets, registration: o.Registration, lifetimes: o.Lifetimes, names: m.names, clock: m.clock,
	}
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (r *Replica) Name() string { return "serving-cert::secret/" + r.secretName }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider. Both are empty before Ensure has succeeded.
func (r *Replica) CurrentCertKeyContent() (certificate, key []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.certificate, r.key
}

// AddListener implements dynamiccertificates.Notifier.
func (r *Replica) AddListener(listener dynamiccertificates.Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, listener)
}

// Ensure reads the Secret, takes the steps of a rotation that are due, has the registration trust the authorities, and makes a
// serving certificate if there is none that is good for long enough. It is called once before serving; Run does the same again and
// again. A registration that cannot be told is an error of Run alone: the server may come before it.
func (r *Replica) Ensure(ctx context.Context) error {
	err := r.sync(ctx)
	if certificate, _ := r.CurrentCertKeyContent(); len(certificate) == 0 {
		return err
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The serving certificate may not be trusted yet; trying again", "after", r.lifetimes.interval())
	}
	return nil
}

// Run keeps the certificate and the authority until ctx ends. What does not succeed is logged and tried again.
func (r *Replica) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	interval := r.lifetimes.interval()
	ticker := r.clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := r.sync(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Cannot keep the serving certificate; trying again", "after", interval)
		}
	}
}

// sync is one look at everything. A step of a rotation may make the next one possible.
func (r *Replica) sync(ctx context.Context) error {
	var moved bool
	var err error
	for range 4 {
		moved, err = r.step(ctx)
		// After a conflict, what another replica wrote is read next; or the cluster noted meanwhile how the server is doing.
		if !moved && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return err
}

// step publishes what the Secret says, serves what it has signed, and takes one step of a rotation if one is due.
//
// The registration is read before the Secret and written under the condition that it did not change since. So no replica that was
// late can take back what another one has published after writing the Secret.
func (r *Replica) step(ctx context.Context) (moved bool, err error) {
	text, version, registrationErr := r.registration.Trusted(ctx)
	// What is no certificate the cluster does not trust either.
	trusted, _ := cert.ParseCertsPEM(text)
	secret, state, err := r.load(ctx)
	if err != nil {
		return false, err
	}
	if state == nil {
		if err := r.begin(ctx, secret, trusted); err != nil {
			return false, err
		}
		return true, nil
	}
	published, publishErr := same(trusted, state.bundle()), registrationErr
	if registrationErr == nil && !published {
		if publishErr = r.publish(ctx, state, version); publishErr == nil {
			published = true
		}
	}
	if errors.Is(publishErr, ErrNotRegistered) {
		klog.FromContext(ctx).V(2).Info("The serving authority is published when the server is registered")
		publishErr = nil
	}
	among := func(p *pair) bool { return slices.ContainsFunc(trusted, p.certificate.Equal) }
	serveErr := r.serve(ctx, state, published || among(&state.signing))
	if err := errors.Join(publishErr, serveErr); err != nil {
		return false, err
	}
	following := *state
	if following.next != nil && registrationErr == nil && !among(following.next) {
		// Somebody may have taken it out. Its time begins again.
		following.nextTrusted = time.Time{}
	}
	if moved, err = following.advance(r.lifetimes, published, r.clock.Now()); err != nil || !moved {
		return false, err
	}
	if err := r.store(ctx, secret, &following); err != nil {
		return false, err
	}
	return true, nil
}

// load returns the Secret and the state in it. The Secret is nil when there is none, the state when there is nothing in it.
func (r *Replica) load(ctx context.Context) (*corev1.Secret, *authorities, error) {
	secret, err := r.secrets.Get(ctx, r.secretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading Secret %s with the serving authority: %w", r.secretName, err)
	}
	state, err := decode(secret)
	if err != nil {
		return nil, nil, fmt.Errorf("reading Secret %s with the serving authority: %w; restore it, or empty it: then it is written again", r.secretName, err)
	}
	return secret, state, nil
}

// begin writes the first state into the Secret, or the one that was in it until somebody removed it.
func (r *Replica) begin(ctx context.Context, secret *corev1.Secret, trusted []*x509.Certificate) error {
	r.mu.Lock()
	state := r.known
	r.mu.Unlock()
	if state == nil {
		var err error
		if state, err = firstAuthorities(r.lifetimes, trusted, r.clock.Now()); err != nil {
			return err
		}
	}
	return r.store(ctx, secret, state)
}

// store writes the state, if the Secret is still the one that was read. A nil Secret is made.
func (r *Replica) store(ctx context.Context, secret *corev1.Secret, state *authorities) error {
	create := secret == nil
	if create {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: r.secretName}, Type: corev1.SecretTypeOpaque}
	}
	if err := state.encode(secret); err != nil {
		return err
	}
	var err error
	if create {
		_, err = r.secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		_, err = r.secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s with the serving authority: %w", r.secretName, err)
	}
	klog.FromContext(ctx).Info("Wrote the serving authority", "secret", r.secretName, "trusted", len(state.bundle()),
		"signingUntil", state.signing.certificate.NotAfter, "rotating", state.next != nil)
	return nil
}

// publish has the registration trust the authorities, if it is still of that version.
func (r *Replica) publish(ctx context.Context, state *authorities, version string) error {
	bundle, err := cert.EncodeCertificates(state.bundle()...)
	if err == nil {
		err = r.registration.Trust(ctx, bundle, version)
	}
	if err != nil {
		return fmt.Errorf("publishing the serving authority: %w", err)
	}
	return nil
}

// same tells whether two lists hold the same certificates, in any order.
func same(a, b []*x509.Certificate) bool {
	missing := func(list []*x509.Certificate) func(*x509.Certificate) bool {
		return func(c *x509.Certificate) bool { return !slices.ContainsFunc(list, c.Equal) }
	}
	return !slices.ContainsFunc(a, missing(b)) && !slices.ContainsFunc(b, missing(a))
}

// serve replaces the serving certificate when it is not that of the signing authority, or is at its end. One of an authority that is
// not trusted is served only if there is no other. It never outlives the authority.
func (r *Replica) serve(ctx context.Context, state *authorities, trusted bool) error {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = state
	if r.served != nil {
		signed := r.issuer.Equal(state.signing.certificate)
		if !signed && !trusted || signed && now.Before(r.served.NotAfter.Add(-r.lifetimes.certificateRenewBefore())) {
			return nil
		}
	}
	end := now.Add(r.lifetimes.Certificate)
	if last := state.signing.certificate.NotAfter; end.After(last) {
		end = last
	}
	if r.served != nil && r.issuer.Equal(state.signing.certificate) && !end.After(r.served.NotAfter) {
		return nil // Another one would end no later.
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	certificate, err := newCertificate(key, r.names, state.signing, now, end)
	if err != nil {
		return err
	}
	text, keyText, err := pair{certificate: certificate, key: key}.encode()
	if err != nil {
		return err
	}
	r.served, r.issuer, r.certificate, r.key = certificate, state.signing.certificate, text, keyText
	for _, listener := range r.listeners {
		listener.Enqueue()
	}
	klog.FromContext(ctx).Info("Made a serving certificate", "until", end.UTC().Format(time.RFC3339))
	return nil
}
