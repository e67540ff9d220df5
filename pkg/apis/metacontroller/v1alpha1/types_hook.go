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

package v1alpha1

import (
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Hook is one decision that a webhook makes, or an inline hook. It has at most one of the two.
type Hook struct {
	// version is the version of the JSON protocol that the webhook speaks: v1 or v2. Default v1. The versions differ in the
	// keys of the maps of children and related objects, in which related objects may be selected, and in strictness. It has no effect
	// beside inline.
	// +optional
	// +k8s:optional
	// +default="v1"
	Version *HookVersion `json:"version,omitempty"`
	// webhook is the HTTP endpoint to call. A hook with neither webhook nor inline is switched off; for a finalize hook that is rejected.
	// +optional
	// +k8s:optional
	Webhook *Webhook `json:"webhook,omitempty"`
	// inline is the hook itself, as templates with expressions, which the server evaluates. It excludes webhook.
	// +optional
	// +k8s:optional
	Inline *InlineHook `json:"inline,omitempty"`
}

// HookVersion is a version of the JSON protocol between server and webhook.
// +enum
// +k8s:enum
type HookVersion string

const (
	// HookVersionV1 keys children by name relative to the parent, and shows related objects of the parent's namespace only.
	HookVersionV1 HookVersion = "v1"
	// HookVersionV2 keys namespaced objects by namespace/name throughout, and is strict about unknown fields.
	HookVersionV2 HookVersion = "v2"
)

// ResponseUnmarshallMode says how strictly a webhook's response is decoded.
// +enum
// +k8s:enum
type ResponseUnmarshallMode string

const (
	// ResponseUnmarshallModeLoose ignores unknown and duplicate fields of a response.
	ResponseUnmarshallModeLoose ResponseUnmarshallMode = "loose"
	// ResponseUnmarshallModeStrict rejects a response with unknown or duplicate fields.
	ResponseUnmarshallModeStrict ResponseUnmarshallMode = "strict"
)

// Webhook is the address of an HTTP endpoint and how to talk to it.
type Webhook struct {
	// url is the full address, for example http://my-hook.my-namespace/sync. It wins over service and path. Either url, or
	// both service and path, must be given.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=4096
	URL *string `json:"url,omitempty"`
	// timeout limits one call, from connecting to the last byte of the response, as a Go duration such as 500ms or 1m.
	// Default 10s; values of 0 or less mean the default. More than 1h is refused.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// path is the URL path used with service. It begins with a slash.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=4096
	Path *string `json:"path,omitempty"`
	// service is the in-cluster Service to call when url is absent.
	// +optional
	// +k8s:optional
	Service *ServiceReference `json:"service,omitempty"`
	// etag lets the webhook return 304 Not Modified instead of repeating a response.
	// +optional
	// +k8s:optional
	Etag *WebhookEtagConfig `json:"etag,omitempty"`
	// responseUnMarshallMode says how unknown and duplicate fields in the response are treated: loose ignores them, strict
	// rejects the response. Default: loose for version v1, strict for version v2.
	// +optional
	// +k8s:optional
	ResponseUnMarshallMode *ResponseUnmarshallMode `json:"responseUnMarshallMode,omitempty"`

	WebhookSecurity `json:",inline"`
}

// WebhookSecurity is how the server and a webhook prove to each other who they are. If any of its fields is set on a
// webhook, endpointConfigs are not consulted for that webhook.
type WebhookSecurity struct {
	// caBundle are the certificate authorities trusted for the webhook's certificate, in place of the system's. Exactly one
	// source must be given. A referenced Secret or ConfigMap is watched; a new bundle is used from the next call on.
	// +optional
	// +k8s:optional
	CABundle *CABundle `json:"caBundle,omitempty"`
	// clientTLS is the client certificate that is presented to the webhook. The Secret is watched; a renewed certificate is
	// used from the next connection on.
	// +optional
	// +k8s:optional
	ClientTLS *ClientTLS `json:"clientTLS,omitempty"`
	// authorization sends a credential from a Secret in the Authorization header. It excludes basicAuth.
	// +optional
	// +k8s:optional
	Authorization *WebhookAuthorization `json:"authorization,omitempty"`
	// basicAuth sends a user name and password from a Secret in the Authorization header. It excludes authorization.
	// +optional
	// +k8s:optional
	BasicAuth *WebhookBasicAuth `json:"basicAuth,omitempty"`
}

// WebhookEtagConfig configures the use of entity tags (RFC 9110 §8.8.3) with a webhook.
type WebhookEtagConfig struct {
	// enabled switches entity tags on: the tag of the last response for an object is sent in If-None-Match, and a status of
	// 304 or 412 stands for the last response's body. Default false.
	// +optional
	// +k8s:optional
	Enabled *bool `json:"enabled,omitempty"`
	// cacheTimeoutSeconds is how long a response is remembered, in seconds. Absent: as long as its object exists.
	// +optional
	// +k8s:optional
	CacheTimeoutSeconds *int32 `json:"cacheTimeoutSeconds,omitempty"`
	// cacheCleanupSeconds is accepted for compatibility. Expired responses are dropped without it.
	// +optional
	// +k8s:optional
	CacheCleanupSeconds *int32 `json:"cacheCleanupSeconds,omitempty"`
}

// ServiceReference names a Service and a port of it.
type ServiceReference struct {
	// name of the Service. Required.
	// +required
	// +k8s:required
	Name string `json:"name"`
	// namespace of the Service. Required.
	// +required
	// +k8s:required
	Namespace string `json:"namespace"`
	// port of the Service, from 1 to 65535. Default 80.
	// +optional
	// +k8s:optional
	Port *int32 `json:"port,omitempty"`
	// protocol is the URL scheme: http or https. Default http.
	// +optional
	// +k8s:optional
	Protocol *string `json:"protocol,omitempty"`
}

// EndpointConfig gives TLS and credentials to the webhooks on one host.
type EndpointConfig struct {
	// host is a host name, with or without port, compared with the webhook's URL without regard to case. A port may be left
	// out where the URL uses the default port of its scheme. Required.
	// +required
	// +k8s:required
	Host string `json:"host"`

	WebhookSecurity `json:",inline"`
}

// EndpointMatches reports whether the host of an EndpointConfig is that of a webhook's address, with or without the port where
// it is the default of the scheme (docs/reference/contract.md#s2.4). Case does not matter.
func EndpointMatches(host string, address *url.URL) bool {
	defaultPort := ":80"
	if address.Scheme == "https" {
		defaultPort = ":443"
	}
	if strings.EqualFold(host, address.Host) {
		return true
	}
	if address.Port() == "" {
		return strings.EqualFold(host, address.Host+defaultPort)
	}
	bare, hasDefaultPort := strings.CutSuffix(address.Host, defaultPort)
	return hasDefaultPort && strings.EqualFold(host, bare)
}

// EachReference calls visit for each Secret and ConfigMap that calls of the webhook need: with the setting that uses it, such as caBundle, the
// field of that which names it, and the keys that are read.
func (s *WebhookSecurity) EachReference(visit func(use, field, kind, namespace, name string, keys ...string)) {
	const secret, secretRef = "Secret", "secretRef"
	if b := s.CABundle; b != nil && b.SecretRef != nil {
		visit("caBundle", secretRef, secret, b.SecretRef.Namespace, b.SecretRef.Name, ptr.Deref(b.SecretRef.Key, "ca.crt"))
	}
	if b := s.CABundle; b != nil && b.ConfigMapRef != nil {
		visit("caBundle", "configMapRef", "ConfigMap", b.ConfigMapRef.Namespace, b.ConfigMapRef.Name, ptr.Deref(b.ConfigMapRef.Key, "ca.crt"))
	}
	if c := s.ClientTLS; c != nil {
		visit("clientTLS", secretRef, secret, c.SecretRef.Namespace, c.SecretRef.Name,
			ptr.Deref(c.CertKey, "tls.crt"), ptr.Deref(c.PrivateKeyKey, "tls.key"))
	}
	if a := s.Authorization; a != nil {
		visit("authorization", secretRef, secret, a.SecretRef.Namespace, a.SecretRef.Name, a.SecretRef.Key)
	}
	if b := s.BasicAuth; b != nil {
		visit("basicAuth", secretRef, secret, b.SecretRef.Namespace, b.SecretRef.Name,
			ptr.Deref(b.UsernameKey, "username"), ptr.Deref(b.PasswordKey, "password"))
	}
}

// CABundle is a set of PEM certificates. Exactly one of its sources must be given.
type CABundle struct {
	// inline is the PEM text itself, of at least one certificate.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=1048576
	Inline *string `json:"inline,omitempty"`
	// secretRef takes the PEM text from a key of a Secret.
	// +optional
	// +k8s:optional
	SecretRef *CABundleReference `json:"secretRef,omitempty"`
	// configMapRef takes the PEM text from a key of a ConfigMap.
	// +optional
	// +k8s:optional
	ConfigMapRef *CABundleReference `json:"configMapRef,omitempty"`
}

// CABundleReference names a key of a Secret or ConfigMap that holds a CA bundle.
type CABundleReference struct {
	// name of the Secret or ConfigMap. Required.
	// +required
	// +k8s:required
	Name string `json:"name"`
	// namespace of the Secret or ConfigMap. Required.
	// +required
	// +k8s:required
	Namespace string `json:"namespace"`
	// key in its data. Default ca.crt.
	// +optional
	// +k8s:optional
	// +default="ca.crt"
	Key *string `json:"key,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// name of the Secret. Required.
	// +required
	// +k8s:required
	Name string `json:"name"`
	// namespace of the Secret. Required.
	// +required
	// +k8s:required
	Namespace string `json:"namespace"`
}

// ClientTLS is a client certificate with its private key, from one Secret.
type ClientTLS struct {
	// secretRef names the Secret.
	SecretRef SecretReference `json:"secretRef"`
	// certKey is the key of the PEM certificate in the Secret. Default tls.crt.
	// +optional
	// +k8s:optional
	// +default="tls.crt"
	CertKey *string `json:"certKey,omitempty"`
	// privateKeyKey is the key of the PEM private key in the Secret. Default tls.key.
	// +optional
	// +k8s:optional
	// +default="tls.key"
	PrivateKeyKey *string `json:"privateKeyKey,omitempty"`
}

// WebhookAuthorization is a credential that is sent in the Authorization header.
type WebhookAuthorization struct {
	// type is the scheme in front of the credential. Default Bearer. Basic is rejected: use basicAuth.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=256
	// +default="Bearer"
	Type *string `json:"type,omitempty"`
	// secretRef names the key of a Secret that holds the credential. White space around it is removed.
	SecretRef SecretKeyReference `json:"secretRef"`
}

// SecretKeyReference names a key of a Secret.
type SecretKeyReference struct {
	// name of the Secret. Required.
	// +required
	// +k8s:required
	Name string `json:"name"`
	// namespace of the Secret. Required.
	// +required
	// +k8s:required
	Namespace string `json:"namespace"`
	// key in its data. Required.
	// +required
	// +k8s:required
	Key string `json:"key"`
}

// WebhookBasicAuth is a user name with a password (RFC 7617), from one Secret.
type WebhookBasicAuth struct {
	// secretRef names the Secret.
	SecretRef SecretReference `json:"secretRef"`
	// usernameKey is the key of the user name in the Secret. Default username. The name must not hold a colon.
	// +optional
	// +k8s:optional
	// +default="username"
	UsernameKey *string `json:"usernameKey,omitempty"`
	// passwordKey is the key of the password in the Secret. Default password.
	// +optional
	// +k8s:optional
	// +default="password"
	PasswordKey *string `json:"passwordKey,omitempty"`
}
