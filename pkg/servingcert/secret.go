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

// A Secret is the Store of one of several servers that share an authority. The authority is in a Secret of a cluster, the serving
// certificate in memory: the Secret is its content provider for the API server, and may be used from several goroutines.
type Secret struct {
	name   string
	client corev1client.SecretInterface

	// mu guards what follows.
	mu sync.Mutex
	// known is the last state that was read or written; it is what a deleted Secret is made again from.
	known *authorities
	// served is the serving certificate; certificate and key are the same as PEM.
	served           *pair
	certificate, key []byte
	listeners        []dynamiccertificates.Listener
}

var _ dynamiccertificates.CertKeyContentProvider = &Secret{}

// NewSecret returns the Store in the Secret of a name. The client is that of its namespace.
func NewSecret(name string, client corev1client.SecretInterface) *Secret {
	return &Secret{name: name, client: client}
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (s *Secret) Name() string { return "serving-cert::secret/" + s.name }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider. Both are empty before Manager.Ensure has succeeded.
func (s *Secret) CurrentCertKeyContent() (certificate, key []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.certificate, s.key
}

// AddListener implements dynamiccertificates.Notifier.
func (s *Secret) AddListener(listener dynamiccertificates.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, listener)
}

// open implements Store. A Secret that somebody removed or emptied is written again.
func (s *Secret) open(ctx context.Context) (*authorities, func(), error) {
	secret, err := s.client.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Type: corev1.SecretTypeOpaque}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading Secret %s with the serving authority: %w", s.name, err)
	}
	kept, err := decode(secret)
	if err != nil {
		return nil, nil, fmt.Errorf("reading Secret %s with the serving authority: %w; restore it, or empty it: then it is written again", s.name, err)
	}
	s.mu.Lock()
	if kept.signing.certificate != nil {
		s.known = kept
	}
	known, served := s.known, s.served
	s.mu.Unlock()
	if known != nil && known != kept {
		again := *known
		again.source = secret
		if err := s.save(ctx, &again); err != nil {
			return nil, nil, err
		}
		kept = &again
	}
	kept.serving = served
	return kept, func() {}, nil
}

// save implements Store.
func (s *Secret) save(ctx context.Context, following *authorities) error {
	secret := following.source
	if err := following.encode(secret); err != nil {
		return err
	}
	var err error
	if secret.ResourceVersion == "" {
		following.source, err = s.client.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		following.source, err = s.client.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s with the serving authority: %w", s.name, err)
	}
	s.mu.Lock()
	s.known = following
	s.mu.Unlock()
	klog.FromContext(ctx).Info("Wrote the serving authority", "secret", s.name, "trusted", len(following.bundle()),
		"signingUntil", following.signing.certificate.NotAfter, "rotating", following.next != nil)
	return nil
}

// serve implements Store.
func (s *Secret) serve(ctx context.Context, serving *pair) error {
	certificate, key, err := serving.encode()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served, s.certificate, s.key = serving, certificate, key
	for _, listener := range s.listeners {
		listener.Enqueue()
	}
	klog.FromContext(ctx).Info("Made a serving certificate", "until", serving.certificate.NotAfter.Format(time.RFC3339))
	return nil
}

// decode returns the state in a Secret, without an authority when the Secret is empty.
func decode(secret *corev1.Secret) (*authorities, error) {
	if len(secret.Data[signingCertificateKey]) == 0 && len(secret.Data[signingKeyKey]) == 0 {
		return &authorities{source: secret}, nil
	}
	signing, err := parsePair(secret.Data[signingCertificateKey], secret.Data[signingKeyKey])
	if err != nil {
		return nil, fmt.Errorf("reading the authority: %w", err)
	}
	_, rotate := secret.Annotations[RotateAnnotation]
	a := &authorities{source: secret, signing: *signing, rotate: rotate}
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
