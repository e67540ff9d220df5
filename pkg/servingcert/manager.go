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
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// DefaultServiceName is the name of the Service under which the server is registered.
	DefaultServiceName = "metacontroller-apiserver"
	// DefaultServiceNamespace is its namespace.
	DefaultServiceNamespace = "metacontroller"

	// checkInterval is the pause between two looks at the certificates of a server without a Registration. Time passes for a suspended
	// machine as well, so this is not computed from the dates in them.
	checkInterval = time.Hour
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

// A Store keeps the authority and the serving certificate of a server: Files or a Secret.
type Store interface {
	// open returns what is kept, and what ends its use. Nobody else writes in between, or a later save is refused as a conflict.
	open(ctx context.Context) (kept *authorities, release func(), err error)
	// save keeps authorities, which are those of open or made from them.
	save(ctx context.Context, following *authorities) error
	// serve keeps a serving certificate, and has the server use it.
	serve(ctx context.Context, serving *pair) error
}

// Options say for whom a Manager makes certificates.
type Options struct {
	// Registration is told whom to trust, before what they have signed is served. A Secret requires one. Files have none: whoever registers
	// the server reads the authority from them, and it is renewed with the same key and name, so that the registration stays good.
	Registration Registration
	// Lifetimes must be valid. The zero value means DefaultLifetimes.
	Lifetimes Lifetimes
	// Hosts are DNS names and IP addresses that the certificate is valid for, besides localhost, 127.0.0.1, ::1 and the names of
	// the Service.
	Hosts []string
	// Clock tells the time. Nil means the clock of the machine.
	Clock clock.WithTicker
}

// A Manager keeps the certificates in one Store. It may be used from several goroutines, and several processes may each have one
// for the same files or the same Secret.
type Manager struct {
	store        Store
	registration Registration
	lifetimes    Lifetimes
	interval     time.Duration
	hosts        []string
	clock        clock.WithTicker
	// mu is held during a sync.
	mu sync.Mutex
}

// New returns a Manager. It does nothing before Ensure or Run is called.
func New(store Store, o Options) *Manager {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.Lifetimes = cmp.Or(o.Lifetimes, DefaultLifetimes())
	interval := o.Lifetimes.interval()
	if o.Registration == nil {
		interval = checkInterval
	}
	// The aggregation layer expects a certificate for the first one, whatever address it dials.
	const service = DefaultServiceName + "." + DefaultServiceNamespace
	hosts := slices.Concat([]string{service + ".svc", service, DefaultServiceName, "localhost", "127.0.0.1", "::1"}, o.Hosts)
	return &Manager{
		store: store, registration: o.Registration, lifetimes: o.Lifetimes, interval: interval, hosts: hosts, clock: o.Clock,
	}
}

// Ensure makes the certificates in dir, or renews them when that is necessary, for the default Service, this machine, and the
// given DNS names and IP addresses.
func Ensure(ctx context.Context, dir string, hosts ...string) (Files, error) {
	files := FilesIn(dir)
	return files, New(files, Options{Hosts: hosts}).Ensure(ctx)
}

// Ensure makes what is missing, renews what expires soon or is not valid for all names, takes the steps of a rotation that are due, and
// has the registration trust the authorities. It is called once before serving; Run does the same again and again. A registration that
// cannot be told is an error of Run alone: the server may come before it.
func (m *Manager) Ensure(ctx context.Context) error {
	served, err := m.sync(ctx)
	if err != nil && served {
		klog.FromContext(ctx).Error(err, "The serving certificate may not be trusted yet; trying again", "after", m.interval)
		return nil
	}
	if err != nil {
		return fmt.Errorf("preparing serving certificate: %w", err)
	}
	return nil
}

// Run keeps the certificate and the authority until ctx ends. What does not succeed is logged and tried again.
func (m *Manager) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticker := m.clock.NewTicker(m.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if _, err := m.sync(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Cannot keep the serving certificate; trying again", "after", m.interval)
		}
	}
}

// sync is one look at everything, and reports whether there is a certificate to serve. A step may make the next one possible.
func (m *Manager) sync(ctx context.Context) (served bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range 4 {
		var good, moved bool
		good, moved, err = m.step(ctx)
		served = served || good
		// After a conflict, what another replica wrote is read next; or the cluster noted meanwhile how the server is doing.
		if !moved && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return served, err
}

// step publishes what the store says, serves what it has signed, and takes one step of a rotation if one is due.
//
// The registration is read before the store and written under the condition that it did not change since. So no replica that was
// late can take back what another one has published after writing the Secret.
func (m *Manager) step(ctx context.Context) (served, moved bool, err error) {
	trusted, version, registrationErr := m.trusted(ctx)
	kept, release, err := m.store.open(ctx)
	if err != nil {
		return false, false, err
	}
	defer release()
	if now := m.clock.Now(); kept.signing.certificate == nil || m.registration == nil && !kept.outlive(m.lifetimes, now) {
		if err := kept.begin(m.lifetimes, trusted, now); err != nil {
			return false, false, err
		}
		err := m.store.save(ctx, kept)
		return false, err == nil, err
	}
	if m.registration == nil {
		err := m.serve(ctx, kept, true)
		return err == nil, false, err
	}
	published, publishErr := same(trusted, kept.bundle()), registrationErr
	if registrationErr == nil && !published {
		publishErr = m.publish(ctx, kept, version)
		published = publishErr == nil
	}
	if errors.Is(publishErr, ErrNotRegistered) {
		klog.FromContext(ctx).V(2).Info("The serving authority is published when the server is registered")
		publishErr = nil
	}
	among := func(p *pair) bool { return slices.ContainsFunc(trusted, p.certificate.Equal) }
	serveErr := m.serve(ctx, kept, published || among(&kept.signing))
	if err := errors.Join(publishErr, serveErr); err != nil {
		return serveErr == nil, false, err
	}
	following := *kept
	if following.next != nil && registrationErr == nil && !among(following.next) {
		// Somebody may have taken it out. Its time begins again.
		following.nextTrusted = time.Time{}
	}
	if moved, err = following.advance(m.lifetimes, published, m.clock.Now()); err == nil && moved {
		err = m.store.save(ctx, &following)
	}
	return true, moved && err == nil, err
}

// trusted returns whom the cluster trusts, and the version of the registration.
func (m *Manager) trusted(ctx context.Context) (trusted []*x509.Certificate, version string, err error) {
	if m.registration == nil {
		return nil, "", nil
	}
	text, version, err := m.registration.Trusted(ctx)
	// What is no certificate the cluster does not trust either.
	trusted, _ = cert.ParseCertsPEM(text)
	return trusted, version, err
}

// publish has the registration trust the authorities, if it is still of that version.
func (m *Manager) publish(ctx context.Context, kept *authorities, version string) error {
	bundle, err := cert.EncodeCertificates(kept.bundle()...)
	if err == nil {
		err = m.registration.Trust(ctx, bundle, version)
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

// serve replaces the serving certificate when it is not that of the signing authority, is not valid for all names, or is at its end. One
// of an authority that is not trusted is served only if there is no other. It never outlives the authority.
func (m *Manager) serve(ctx context.Context, kept *authorities, trusted bool) error {
	now := m.clock.Now()
	end := now.Add(m.lifetimes.Certificate)
	if last := kept.signing.certificate.NotAfter; end.After(last) {
		end = last
	}
	if kept.serving != nil && covers(kept.serving.certificate, m.hosts) {
		present := kept.serving.certificate
		signed := signedBy(present, kept.signing.certificate)
		// There may be none that would end later.
		lasts := now.Before(present.NotAfter.Add(-m.lifetimes.certificateRenewBefore())) || !end.After(present.NotAfter)
		if !signed && !trusted || signed && lasts && !now.Before(present.NotBefore) {
			return nil
		}
	}
	serving, err := newCertificate(kept.servingKey, m.hosts, kept.signing, now, end)
	if err != nil {
		return err
	}
	return m.store.serve(ctx, serving)
}
