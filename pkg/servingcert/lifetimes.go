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
	"errors"
	"fmt"
	"time"
)

const (
	// authorityLife is the validity of the authority.
	authorityLife = 10 * 365 * 24 * time.Hour
	// certificateLife is the validity of the serving certificate.
	certificateLife = 90 * 24 * time.Hour
)

// Lifetimes say how long certificates are valid, and when they are replaced.
type Lifetimes struct {
	// Certificate is the validity of a serving certificate, and CertificateRenewBefore how long before its end it is replaced: 0 means
	// a third of Certificate.
	Certificate, CertificateRenewBefore time.Duration
	// Authority is the validity of the authority, and AuthorityRenewBefore how long before its end the next one is made: 0 means a
	// third of Authority.
	Authority, AuthorityRenewBefore time.Duration
	// Propagation is how long the registration must have trusted an authority before that signs: until then every kube-apiserver of
	// the cluster has seen it.
	Propagation time.Duration
}

// DefaultLifetimes are 90 days for certificates, 10 years for the authority, and an hour for the kube-apiservers.
func DefaultLifetimes() Lifetimes {
	return Lifetimes{Certificate: certificateLife, Authority: authorityLife, Propagation: time.Hour}
}

func (l Lifetimes) certificateRenewBefore() time.Duration {
	if l.CertificateRenewBefore == 0 {
		return l.Certificate / 3
	}
	return l.CertificateRenewBefore
}

func (l Lifetimes) authorityRenewBefore() time.Duration {
	if l.AuthorityRenewBefore == 0 {
		return l.Authority / 3
	}
	return l.AuthorityRenewBefore
}

// interval is the pause between two looks at the certificates: a minute, or a small part of what there is to wait for.
func (l Lifetimes) interval() time.Duration {
	shortest := min(l.Certificate-l.certificateRenewBefore(), l.Authority-l.authorityRenewBefore())
	if l.Propagation > 0 {
		shortest = min(shortest, l.Propagation)
	}
	return min(time.Minute, max(shortest/10, 50*time.Millisecond))
}

// Validate returns everything that is wrong with the lifetimes, as one error.
func (l Lifetimes) Validate() error {
	var problems []error
	if l.Certificate <= 0 || l.Authority <= 0 {
		problems = append(problems, fmt.Errorf("the validities %s of certificates and %s of the authority must be positive", l.Certificate, l.Authority))
	}
	if l.CertificateRenewBefore < 0 || l.certificateRenewBefore() >= l.Certificate {
		problems = append(problems, fmt.Errorf("a certificate of %s cannot be renewed %s before its end", l.Certificate, l.CertificateRenewBefore))
	}
	if l.AuthorityRenewBefore < 0 || l.authorityRenewBefore() >= l.Authority {
		problems = append(problems, fmt.Errorf("an authority of %s cannot be renewed %s before its end", l.Authority, l.AuthorityRenewBefore))
	}
	if l.Propagation < 0 {
		problems = append(problems, fmt.Errorf("the time %s for kube-apiservers must not be negative", l.Propagation))
	}
	if needed := l.Certificate + l.Propagation; len(problems) == 0 && l.authorityRenewBefore() < needed {
		problems = append(problems, fmt.Errorf("the next authority must be made %s before the end of the former one, so that this one outlives "+
			"what it has signed; that is the validity of a certificate and the time for kube-apiservers", needed))
	}
	return errors.Join(problems...)
}
