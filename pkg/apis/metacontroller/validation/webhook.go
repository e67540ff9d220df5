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
	"cmp"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// validateHooks checks the hooks that are called; preUpdateChild and postUpdateChild are not.
func validateHooks(sync, finalize, customize *v1alpha1.Hook, decorator bool, path *field.Path) field.ErrorList {
	errs := validateHook(sync, path.Child("sync"))
	errs = append(errs, validateInline(sync, place{decorator: decorator}, path.Child("sync"))...)
	errs = append(errs, validateHook(finalize, path.Child("finalize"))...)
	errs = append(errs, validateInline(finalize, place{decorator: decorator, finalize: true}, path.Child("finalize"))...)
	if finalize != nil && finalize.Webhook == nil && finalize.Inline == nil {
		// With Metacontroller this adds a finalizer to every parent that nothing ever removes (docs/reference/contract.md#s15).
		errs = append(errs, field.Required(path.Child("finalize", "webhook"),
			"a finalize hook needs a webhook, which decides when objects may go"))
	}
	errs = append(errs, validateInline(customize, place{decorator: decorator, customize: true}, path.Child("customize"))...)
	return append(errs, validateHook(customize, path.Child("customize"))...)
}

func validateHook(hook *v1alpha1.Hook, path *field.Path) field.ErrorList {
	if hook == nil || hook.Webhook == nil {
		return nil
	}
	webhook, at := hook.Webhook, path.Child("webhook")
	errs := validateAddress(webhook, at)
	errs = append(errs, validateTimeout(webhook.Timeout, at.Child("timeout"))...)
	errs = append(errs, validateSecurity(&webhook.WebhookSecurity, at)...)
	return append(errs, validateCredentials(&webhook.WebhookSecurity, at)...)
}

const (
	// longTimeout is more than a hook should ever need.
	longTimeout = 5 * time.Minute
	// maxTimeout is refused beyond: a call occupies one of the controller's workers until it ends
	// (docs/reference/compatibility.md#v-timeout).
	maxTimeout = time.Hour
)

func validateTimeout(timeout *metav1.Duration, path *field.Path) field.ErrorList {
	if timeout == nil || timeout.Duration <= maxTimeout {
		return nil
	}
	return field.ErrorList{field.Invalid(path, timeout.Duration.String(),
		"must be no more than 1h, because a call occupies one of the controller's workers until it ends")}
}

// validateEndpointConfigs checks all of those entries that a hook uses. Metacontroller does not read the others, so that a controller
// may run with whatever is in them.
func validateEndpointConfigs(configs []v1alpha1.EndpointConfig, path *field.Path, hooks ...*v1alpha1.Hook) field.ErrorList {
	configs = bounded(configs)
	used := sets.New[int]()
	for _, hook := range hooks {
		if called(hook) {
			used.Insert(endpointOf(hook.Webhook, configs))
		}
	}
	var errs field.ErrorList
	for i := range configs {
		errs = append(errs, validateSecurity(&configs[i].WebhookSecurity, path.Index(i))...)
		if used.Has(i) {
			errs = append(errs, validateCredentials(&configs[i].WebhookSecurity, path.Index(i))...)
		}
	}
	return errs
}

// Malformed finds the timeouts of webhooks that are not durations, such as 1d, and a service account that is a name alone, in an object as JSON or
// YAML. They are looked for before the object is decoded, since decoding fails without naming the field. Nothing is found in what is neither JSON
// nor YAML.
func Malformed(data []byte) field.ErrorList {
	var tree any
	if json.Unmarshal(data, &tree) != nil && yaml.Unmarshal(data, &tree) != nil {
		return nil
	}
	// Everything that is a webhook's is there. A ControllerRevision has fields of other kinds elsewhere.
	object, _ := tree.(map[string]any) // Reading a nil map is fine.
	errs := walkDurations(object["spec"], field.NewPath("spec"))
	slices.SortFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
	spec, _ := object["spec"].(map[string]any)
	if account, ok := spec["serviceAccountRef"].(string); ok {
		errs = append(errs, field.Invalid(field.NewPath("spec", "serviceAccountRef"), account, "must be {namespace: NAMESPACE, name: NAME}"))
	}
	return errs
}

func walkDurations(node any, path *field.Path) field.ErrorList {
	object, ok := node.(map[string]any)
	if !ok {
		return nil
	}
	var errs field.ErrorList
	for key, value := range object {
		at := path.Child(key)
		if webhook, ok := value.(map[string]any); ok && key == "webhook" {
			if err := checkDuration(webhook["timeout"]); err != nil {
				errs = append(errs, field.Invalid(at.Child("timeout"), webhook["timeout"], err.Error()))
			}
		}
		errs = append(errs, walkDurations(value, at)...)
	}
	return errs
}

var errDuration = errors.New(`must be a duration in hours, minutes and seconds, such as "1h30m", "90s" or "500ms"`)

func checkDuration(value any) error {
	text, _ := value.(string)
	if _, err := time.ParseDuration(text); err != nil && value != nil {
		return errDuration
	}
	return nil
}

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
		errs = append(errs, validateReference(client.SecretRef.Name, client.SecretRef.Namespace, anObject, at.Child("secretRef"))...)
		errs = append(errs, validateKey(client.CertKey, at.Child("certKey"))...)
		errs = append(errs, validateKey(client.PrivateKeyKey, at.Child("privateKeyKey"))...)
	}
	if basic, at := security.BasicAuth, path.Child("basicAuth"); basic != nil {
		errs = append(errs, validateReference(basic.SecretRef.Name, basic.SecretRef.Namespace, anObject, at.Child("secretRef"))...)
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
	errs := validateReference(ref.Name, ref.Namespace, anObject, path.Child("secretRef"))
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
	return append(validateReference(ref.Name, ref.Namespace, anObject, path), validateKey(ref.Key, path.Child("key"))...)
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

// anObject is how errors name a Secret or ConfigMap.
const anObject = "an object"

// validateReference checks the names of an object, such as a Secret. That they are given is checked by the generated validation.
func validateReference(name, namespace, what string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		errs = append(errs, invalid(path.Child("name"), name, "must be the name of "+what+", in lower case"))
	}
	if namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		errs = append(errs, invalid(path.Child("namespace"), namespace, "must be the name of a namespace"))
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

// maxAddress is the longest URL or path, as the markers in v1alpha1 have it. A longer one is refused there.
const maxAddress = 4096

// validateAddress demands an address that can be called: a URL, or a Service and a path. With a URL the others are ignored.
func validateAddress(webhook *v1alpha1.Webhook, path *field.Path) field.ErrorList {
	switch {
	case webhook.URL != nil:
		return validateURL(*webhook.URL, path.Child("url"))
	case webhook.Service == nil && webhook.Path == nil:
		return field.ErrorList{field.Required(path.Child("url"), "either url, or both service and path, must be set")}
	case webhook.Service == nil:
		return field.ErrorList{field.Required(path.Child("service"), "must be set together with path, or url instead of both")}
	case webhook.Path == nil:
		return field.ErrorList{field.Required(path.Child("path"), "must be set together with service, or url instead of both")}
	}
	return append(validateService(webhook.Service, path.Child("service")), validatePath(*webhook.Path, path.Child("path"))...)
}

func validateURL(value string, path *field.Path) field.ErrorList {
	if utf8.RuneCountInString(value) > maxAddress {
		return nil
	}
	demand := "must be an absolute URL that starts with http:// or https://"
	address, err := url.Parse(value)
	switch {
	case err != nil && revealing(value):
		// The error has parts of the URL.
	case err != nil:
		demand += ": " + err.Error()
	case address.Scheme != "http" && address.Scheme != "https" || address.Host == "":
	case address.Hostname() == "":
		demand = "must have a host"
	case badPort(address.Port()):
		demand = "must have a port from 1 to 65535, or none"
	default:
		return nil
	}
	return field.ErrorList{invalidAddress(path, value, demand)}
}

func badPort(port string) bool {
	if port == "" {
		return false
	}
	n, err := strconv.Atoi(port)
	return err != nil || n < 1 || n > maxPort
}

const maxPort = 65535

// revealing reports whether an address has a part that may hold a password or a token: a user, a query or a fragment.
func revealing(address string) bool { return strings.ContainsAny(address, "@?#%") }

func invalidAddress(path *field.Path, value, demand string) *field.Error {
	if revealing(value) {
		return secret(path, demand)
	}
	return invalid(path, value, demand)
}

// validateService demands what makes up a host name of a Service and nothing else: the parts are joined to a URL
// (docs/reference/compatibility.md#v-service).
func validateService(service *v1alpha1.ServiceReference, path *field.Path) field.ErrorList {
	errs := validateServiceName(service.Name, path.Child("name"), "must be the name of a Service, such as my-hook")
	errs = append(errs, validateServiceName(service.Namespace, path.Child("namespace"), "must be the name of a namespace")...)
	if port := ptr.Deref(service.Port, 1); port < 1 || port > maxPort {
		errs = append(errs, field.Invalid(path.Child("port"), port, "must be between 1 and 65535"))
	}
	if protocol := ptr.Deref(service.Protocol, "http"); !strings.EqualFold(protocol, "http") && !strings.EqualFold(protocol, "https") {
		errs = append(errs, field.NotSupported(path.Child("protocol"), cut(protocol), []string{"http", "https"}))
	}
	return errs
}

// validateServiceName takes upper case for lower case, as name servers do.
func validateServiceName(name string, path *field.Path, demand string) field.ErrorList {
	if name == "" || len(validation.IsDNS1123Label(strings.ToLower(name))) == 0 {
		return nil
	}
	return field.ErrorList{invalidAddress(path, name, demand)}
}

// validatePath demands that the path, put behind a host, leaves the host what it is.
func validatePath(value string, path *field.Path) field.ErrorList {
	if utf8.RuneCountInString(value) > maxAddress {
		return nil
	}
	demand := "must begin with a slash"
	if strings.HasPrefix(value, "/") {
		if _, err := url.Parse("http://host" + value); err == nil {
			return nil
		}
		demand = "must be a path as in a URL"
	}
	return field.ErrorList{invalidAddress(path, value, demand)}
}

// addressOf is the URL that is called; nil if there is none that can be.
func addressOf(webhook *v1alpha1.Webhook) *url.URL {
	raw := ""
	switch service := webhook.Service; {
	case webhook.URL != nil:
		raw = *webhook.URL
	case service != nil && webhook.Path != nil:
		raw = ptr.Deref(service.Protocol, "http") + "://" + service.Name + "." + service.Namespace + ":" +
			strconv.Itoa(int(ptr.Deref(service.Port, 80))) + *webhook.Path
	}
	address, err := url.Parse(raw)
	if err != nil || address.Host == "" {
		return nil
	}
	return address
}
