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

package registration

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// Trust is whom a cluster trusts as this server: the caBundle of the APIService. It implements servingcert.Registration.
type Trust struct {
	client dynamic.Interface
	// service is the Service to which the APIService must point, the zero value if any will do.
	service types.NamespacedName
}

var _ servingcert.Registration = &Trust{}

// NewTrust returns the Trust of a cluster, as seen and written by the user of a client configuration. That user needs the verbs get and
// patch on the APIService. An APIService that points to another Service than service is that of another server, and counts as none; with
// the zero value all are this one's.
func NewTrust(config *rest.Config, service types.NamespacedName) (*Trust, error) {
	client, err := newClient(config)
	if err != nil {
		return nil, err
	}
	return &Trust{client: client, service: service}, nil
}

// Trusted returns the caBundle and the APIService's resourceVersion. The error is servingcert.ErrNotRegistered if there is no APIService, or
// that of another server or of CustomResourceDefinitions.
func (t *Trust) Trusted(ctx context.Context) (bundle []byte, version string, err error) {
	existing, err := t.get(ctx)
	if _, served := errors.AsType[*ServedByDefinitionsError](err); served {
		klog.FromContext(ctx).Info("The serving authority is not published", "reason", err.Error())
		return nil, "", servingcert.ErrNotRegistered
	}
	if err != nil {
		return nil, "", err
	}
	if existing == nil {
		return nil, "", servingcert.ErrNotRegistered
	}
	if t.service != (types.NamespacedName{}) {
		if err := checkOwn(existing, t.service.Namespace, t.service.Name); err != nil {
			klog.FromContext(ctx).Info("The serving authority is not published", "reason", err.Error())
			return nil, "", servingcert.ErrNotRegistered
		}
	}
	if bundle, err = bundleOf(existing); err != nil {
		return nil, "", err
	}
	return bundle, existing.GetResourceVersion(), nil
}

// bundleOf returns the caBundle of a registration.
func bundleOf(apiService *unstructured.Unstructured) ([]byte, error) {
	text, _, err := unstructured.NestedString(apiService.Object, "spec", "caBundle")
	if err != nil {
		return nil, fmt.Errorf("reading APIService %s: %w", APIServiceName, err)
	}
	bundle, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("reading the caBundle of APIService %s: %w", APIServiceName, err)
	}
	return bundle, nil
}

// maxTrusted is how many certificates a server leaves in the caBundle when it adds its own. A server whose certificates are in a volume that
// goes with its Pod leaves an authority of ten years with each Pod.
const maxTrusted = 8

// joined returns the authority of a server together with those that a registration trusts besides and that have not expired: other replicas
// may serve certificates of these. It stays the same when the registration has it. A server that adds its own puts it first, and leaves out
// the last ones beyond maxTrusted, so that those of servers which are there, and add theirs again, push out those of servers which are gone.
func joined(own []byte, existing *unstructured.Unstructured, now time.Time) []byte {
	there, err := bundleOf(existing)
	if err != nil {
		return own // Nobody can read what is there.
	}
	mine, all := decodeAll(own), decodeAll(there)
	in := func(list [][]byte) func(der []byte) bool {
		return func(der []byte) bool {
			return slices.ContainsFunc(list, func(o []byte) bool { return bytes.Equal(o, der) })
		}
	}
	others := slices.DeleteFunc(slices.Clone(all), func(der []byte) bool {
		certificate, err := x509.ParseCertificate(der)
		return err != nil || now.After(certificate.NotAfter) || in(mine)(der)
	})
	added := slices.ContainsFunc(mine, func(der []byte) bool { return !in(all)(der) })
	if room := max(0, maxTrusted-len(mine)); added && len(others) > room {
		others = others[:room]
	}
	bundle := append(bytes.TrimSpace(bytes.Clone(own)), '\n')
	for _, der := range others {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})...)
	}
	return bundle
}

// decodeAll returns the certificates in a text in PEM form, in DER.
func decodeAll(text []byte) (certificates [][]byte) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return certificates
		}
		certificates = append(certificates, block.Bytes)
	}
}

// Trust sets the caBundle of an APIService that has the resourceVersion. If it has another one, apierrors.IsConflict is true for the
// error.
func (t *Trust) Trust(ctx context.Context, bundle []byte, version string) error {
	return t.apply(ctx, bundle, map[string]any{"name": APIServiceName, "resourceVersion": version})
}

// get returns the APIService, nil if there is none. One that stands for CustomResourceDefinitions is not ours.
func (t *Trust) get(ctx context.Context) (*unstructured.Unstructured, error) {
	existing, err := readAPIService(ctx, t.client)
	if existing != nil && existing.GetLabels()[automanagedLabel] != "" {
		return nil, &ServedByDefinitionsError{}
	}
	return existing, err
}

// apply writes the caBundle alone. The metadata has something that keeps an APIService from being made.
func (t *Trust) apply(ctx context.Context, bundle []byte, metadata map[string]any) error {
	wanted := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resources[kindAPIService].GroupVersion().String(), "kind": "APIService", "metadata": metadata,
	}}
	if err := setBundle(wanted, bundle); err != nil {
		return err
	}
	return apply(ctx, t.client, wanted, authorityFieldManager)
}
