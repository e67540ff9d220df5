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

package validation

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// validateSecurity holds the rules of docs/reference/contract.md#s1.5, docs/reference/contract.md#s2.3, which Metacontroller checks when it starts a controller.
func validateSecurity(security *v1alpha1.WebhookSecurity, path *field.Path) field.ErrorList {
	errs := validateSources(security.CABundle, path.Child("caBundle"))
	if security.Authorization == nil {
		return errs
	}
	if security.BasicAuth != nil {
		errs = append(errs, field.Forbidden(path.Child("basicAuth"), "must not be set together with authorization"))
	}
	scheme := security.Authorization.Type
	if scheme != nil && strings.EqualFold(strings.TrimSpace(*scheme), "basic") {
		errs = append(errs, field.Invalid(path.Child("authorization", "type"), *scheme,
			"use basicAuth for a user name and a password"))
	}
	return errs
}

func validateSources(bundle *v1alpha1.CABundle, path *field.Path) field.ErrorList {
	if bundle == nil {
		return nil
	}
	given := 0
	for _, set := range []bool{bundle.Inline != nil, bundle.SecretRef != nil, bundle.ConfigMapRef != nil} {
		if set {
			given++
		}
	}
	switch given {
	case 1:
		return nil
	case 0:
		return field.ErrorList{field.Required(path, "exactly one of inline, secretRef and configMapRef must be set")}
	default:
		return field.ErrorList{field.Invalid(path, field.OmitValueType{},
			"exactly one of inline, secretRef and configMapRef must be set")}
	}
}

// validateCredentials refuses what no hook can be called with: names that no object can have, certificates that are none, and
// schemes that cannot be in a header.
func validateCredentials(security *v1alpha1.WebhookSecurity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if bundle, at := security.CABundle, path.Child("caBundle"); bundle != nil {
		if bundle.SecretRef == nil && bundle.ConfigMapRef == nil {
			errs = append(errs, validatePEM(bundle.Inline, at.Child("inline"))...)
		}
		errs = append(errs, validateBundleReference(bundle.SecretRef, at.Child("secretRef"))...)
		errs = append(errs, validateBundleReference(bundle.ConfigMapRef, at.Child("configMapRef"))...)
	}
	if client, at := security.ClientTLS, path.Child("clientTLS"); client != nil {
		errs = append(errs, validateReference(client.SecretRef.Name, client.SecretRef.Namespace, at.Child("secretRef"))...)
		errs = append(errs, validateKey(client.CertKey, at.Child("certKey"))...)
		errs = append(errs, validateKey(client.PrivateKeyKey, at.Child("privateKeyKey"))...)
	}
	if basic, at := security.BasicAuth, path.Child("basicAuth"); basic != nil {
		errs = append(errs, validateReference(basic.SecretRef.Name, basic.SecretRef.Namespace, at.Child("secretRef"))...)
		errs = append(errs, validateKey(basic.UsernameKey, at.Child("usernameKey"))...)
		errs = append(errs, validateKey(basic.PasswordKey, at.Child("passwordKey"))...)
	}
	if authorization := security.Authorization; authorization != nil {
		errs = append(errs, validateAuthorization(authorization, path.Child("authorization"))...)
	}
	return errs
}

func validateAuthorization(authorization *v1alpha1.WebhookAuthorization, path *field.Path) field.ErrorList {
	ref := authorization.SecretRef
	errs := validateReference(ref.Name, ref.Namespace, path.Child("secretRef"))
	if ref.Key != "" {
		errs = append(errs, validateKey(&ref.Key, path.Child("secretRef", "key"))...)
	}
	scheme := strings.TrimSpace(ptr.Deref(authorization.Type, ""))
	if strings.ContainsFunc(scheme, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		// It may be more than the name of a scheme.
		errs = append(errs, secret(path.Child("type"), "must be the name of a scheme such as Bearer, without control characters"))
	}
	return errs
}

func validateBundleReference(ref *v1alpha1.CABundleReference, path *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	return append(validateReference(ref.Name, ref.Namespace, path), validateKey(ref.Key, path.Child("key"))...)
}

// maxBundle is the longest inline bundle, as the markers in v1alpha1 have it. A longer one is refused there.
const maxBundle = 1 << 20

// validatePEM demands one certificate at least (docs/reference/compatibility.md#v-bundle). What is not one may be a private
// key, and is not repeated.
func validatePEM(text *string, path *field.Path) field.ErrorList {
	if text == nil || utf8.RuneCountInString(*text) > maxBundle || readPEM(*text).certificates > 0 {
		return nil
	}
	return field.ErrorList{secret(path, "must hold a certificate in PEM, from BEGIN CERTIFICATE to END CERTIFICATE, that can be parsed")}
}

// bundleContent counts what is in a bundle.
type bundleContent struct {
	// certificates can be used, unusable ones cannot be parsed, and keys are private.
	certificates, unusable, keys int
}

func readPEM(text string) bundleContent {
	var found bundleContent
	for rest := []byte(text); ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil:
			return found
		case strings.Contains(block.Type, "PRIVATE KEY"):
			found.keys++
		case block.Type != "CERTIFICATE" || len(block.Headers) > 0:
			// They are passed over when the bundle is used, too.
			found.unusable++
		default:
			if _, err := x509.ParseCertificate(block.Bytes); err != nil {
				found.unusable++
				continue
			}
			found.certificates++
		}
	}
}

// validateReference checks the names of a Secret or ConfigMap. That they are given is checked by the generated validation.
func validateReference(name, namespace string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		errs = append(errs, invalid(path.Child("name"), name, "must be the name of an object, in lower case"))
	}
	if namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		errs = append(errs, invalid(path.Child("namespace"), namespace, "must be the name of a namespace"))
	}
	return errs
}

// validateServiceAccount checks the names of the account as which a controller acts. That they are given is checked by the generated
// validation.
func validateServiceAccount(ref *v1alpha1.ServiceAccountReference, path *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	var errs field.ErrorList
	if ref.Name != "" && len(validation.IsDNS1123Subdomain(ref.Name)) > 0 {
		errs = append(errs, invalid(path.Child("name"), ref.Name, "must be the name of a service account, in lower case"))
	}
	if ref.Namespace != "" && len(validation.IsDNS1123Label(ref.Namespace)) > 0 {
		errs = append(errs, invalid(path.Child("namespace"), ref.Namespace, "must be the name of a namespace"))
	}
	return errs
}

func validateKey(key *string, path *field.Path) field.ErrorList {
	if key == nil || len(validation.IsConfigMapKey(*key)) == 0 {
		return nil
	}
	return field.ErrorList{invalid(path, *key, "must be a key of the object's data, such as ca.crt")}
}

// endpointOf finds the entry that gives a webhook its settings; -1 if it has settings of its own, or no entry is about its host.
func endpointOf(webhook *v1alpha1.Webhook, endpoints []v1alpha1.EndpointConfig) int {
	address := addressOf(webhook)
	if address == nil || secures(&webhook.WebhookSecurity) {
		return -1
	}
	return slices.IndexFunc(endpoints, func(e v1alpha1.EndpointConfig) bool { return v1alpha1.EndpointMatches(e.Host, address) })
}

func secures(s *v1alpha1.WebhookSecurity) bool {
	return s.CABundle != nil || s.ClientTLS != nil || s.Authorization != nil || s.BasicAuth != nil
}
