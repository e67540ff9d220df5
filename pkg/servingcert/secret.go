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
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// The content of the Secret.
const (
	// AuthoritiesKey has the certificates that clients shall trust, the signing one first.
	AuthoritiesKey = "ca.crt"
	// signingCertificateKey and signingKeyKey are the authority that signs.
	signingCertificateKey, signingKeyKey = corev1.TLSCertKey, corev1.TLSPrivateKeyKey
	// nextCertificateKey and nextKeyKey are the one that will sign.
	nextCertificateKey, nextKeyKey = "next.crt", "next.key"
)

const (
	// RotateAnnotation on the Secret asks for another authority now. Its value has no meaning. It is removed.
	RotateAnnotation = "metacontroller.k8s.io/rotate-authority"
	// signingSinceAnnotation and nextTrustedAnnotation have times in the form of RFC 3339.
	signingSinceAnnotation = "metacontroller.k8s.io/signing-since"
	nextTrustedAnnotation  = "metacontroller.k8s.io/next-trusted-since"
)

// decode returns the state in a Secret, and nil when the Secret is empty.
func decode(secret *corev1.Secret) (*authorities, error) {
	if len(secret.Data[signingCertificateKey]) == 0 && len(secret.Data[signingKeyKey]) == 0 {
		return nil, nil
	}
	signing, err := parsePair(secret.Data[signingCertificateKey], secret.Data[signingKeyKey])
	if err != nil {
		return nil, fmt.Errorf("reading the authority: %w", err)
	}
	_, rotate := secret.Annotations[RotateAnnotation]
	a := &authorities{signing: *signing, rotate: rotate}
	if a.signingSince, err = timeOf(secret, signingSinceAnnotation); err != nil {
		return nil, err
	}
	if len(secret.Data[nextCertificateKey]) > 0 {
		if a.next, err = parsePair(secret.Data[nextCertificateKey], secret.Data[nextKeyKey]); err != nil {
			return nil, fmt.Errorf("reading the next authority: %w", err)
		}
		if a.nextTrusted, err = timeOf(secret, nextTrustedAnnotation); err != nil {
			return nil, err
		}
	}
	if text := secret.Data[AuthoritiesKey]; len(text) > 0 {
		trusted, err := cert.ParseCertsPEM(text)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", AuthoritiesKey, err)
		}
		a.former = slices.DeleteFunc(trusted, func(c *x509.Certificate) bool {
			return c.Equal(a.signing.certificate) || a.next != nil && c.Equal(a.next.certificate)
		})
	}
	return a, nil
}

// encode writes the state into a Secret, and leaves alone what else is in it.
func (a *authorities) encode(secret *corev1.Secret) error {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	var err error
	if secret.Data[signingCertificateKey], secret.Data[signingKeyKey], err = a.signing.encode(); err != nil {
		return err
	}
	secret.Annotations[signingSinceAnnotation] = a.signingSince.UTC().Format(time.RFC3339Nano)
	delete(secret.Data, nextCertificateKey)
	delete(secret.Data, nextKeyKey)
	delete(secret.Annotations, nextTrustedAnnotation)
	if a.next != nil {
		if secret.Data[nextCertificateKey], secret.Data[nextKeyKey], err = a.next.encode(); err != nil {
			return err
		}
		if !a.nextTrusted.IsZero() {
			secret.Annotations[nextTrustedAnnotation] = a.nextTrusted.UTC().Format(time.RFC3339Nano)
		}
	}
	if !a.rotate {
		delete(secret.Annotations, RotateAnnotation)
	}
	secret.Data[AuthoritiesKey], err = cert.EncodeCertificates(a.bundle()...)
	return err
}

// timeOf returns the time in an annotation, and the zero time when there is none.
func timeOf(secret *corev1.Secret, annotation string) (time.Time, error) {
	text, ok := secret.Annotations[annotation]
	if !ok {
		return time.Time{}, nil
	}
	moment, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading annotation %s: %w", annotation, err)
	}
	return moment, nil
}
