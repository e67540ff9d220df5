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
	"crypto/x509"
	"slices"
	"time"
)

// authorities are what replicas share: who signs their certificates, and whom clients shall trust.
type authorities struct {
	// signing signs, since the time.
	signing      pair
	signingSince time.Time
	// next will sign; nil if there is none. nextTrusted is since when the registration trusts it; zero if it does not yet.
	next        *pair
	nextTrusted time.Time
	// former have signed what may still be served. There may be others that an operator has added.
	former []*x509.Certificate
	// rotate is set by an operator who wants another authority now.
	rotate bool
}

// bundle returns whom clients shall trust: who signs first.
func (a *authorities) bundle() []*x509.Certificate {
	all := []*x509.Certificate{a.signing.certificate}
	if a.next != nil {
		all = append(all, a.next.certificate)
	}
	return append(all, a.former...)
}

// firstAuthorities returns the state of a Secret that was empty. Whom clients trusted until now they trust on: servers that serve
// other certificates are replaced one after the other.
func firstAuthorities(l Lifetimes, trusted []*x509.Certificate, now time.Time) (*authorities, error) {
	signing, err := newAuthorityPair(l, now)
	if err != nil {
		return nil, err
	}
	return &authorities{signing: *signing, signingSince: now, former: unexpired(trusted, now)}, nil
}

// advance takes the next step of a rotation if it is time for one, and reports whether it did. trusted says that the registration
// trusts all of the bundle.
func (a *authorities) advance(l Lifetimes, trusted bool, now time.Time) (moved bool, err error) {
	switch {
	case a.next == nil && (a.rotate || !now.Before(a.signing.certificate.NotAfter.Add(-l.authorityRenewBefore()))):
		if a.next, err = newAuthorityPair(l, now); err != nil {
			return false, err
		}
		a.nextTrusted, a.rotate = time.Time{}, false
	case a.next != nil && trusted && a.nextTrusted.IsZero():
		a.nextTrusted = now
	case a.next != nil && trusted && a.mayReplace(l, now):
		a.former = append([]*x509.Certificate{a.signing.certificate}, a.former...)
		a.signing, a.signingSince = *a.next, now
		a.next, a.nextTrusted = nil, time.Time{}
	default:
		former := unexpired(a.former, now)
		// What former authorities have signed before has ended since, with what a late replica may have signed meanwhile.
		if now.After(a.signingSince.Add(l.Certificate + l.Propagation)) {
			former = nil
		}
		if len(former) == len(a.former) {
			return false, nil
		}
		a.former = former
	}
	return true, nil
}

// mayReplace tells whether the next authority may sign. When the present one has expired, no client accepts what is served, so that
// there is nothing to wait for.
func (a *authorities) mayReplace(l Lifetimes, now time.Time) bool {
	return !now.Before(a.nextTrusted.Add(l.Propagation)) || now.After(a.signing.certificate.NotAfter)
}

func newAuthorityPair(l Lifetimes, now time.Time) (*pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	certificate, err := newAuthority(key, now, now.Add(l.Authority))
	if err != nil {
		return nil, err
	}
	return &pair{certificate: certificate, key: key}, nil
}

func unexpired(certificates []*x509.Certificate, now time.Time) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(certificates), func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
}
