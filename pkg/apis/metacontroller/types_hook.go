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

package metacontroller

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Hook is one decision that a webhook makes.
type Hook struct {
	// version is the version of the JSON protocol that the webhook speaks: v1 or v2. Default v1. The versions differ in the
	// keys of the maps of children and related objects, in which related objects may be selected, and in strictness.
	Version *HookVersion
	// webhook is the HTTP endpoint to call. A hook without webhook is switched off; for a finalize hook that is rejected.
	Webhook *Webhook
}

// HookVersion is a version of the JSON protocol between server and webhook.
type HookVersion string

const (
	// HookVersionV1 keys children by name relative to the parent, and shows related objects of the parent's namespace only.
	HookVersionV1 HookVersion = "v1"
	// HookVersionV2 keys namespaced objects by namespace/name throughout, and is strict about unknown fields.
	HookVersionV2 HookVersion = "v2"
)

// ResponseUnmarshallMode says how strictly a webhook's response is decoded.
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
	URL *string
	// timeout limits one call, from connecting to the last byte of the response, as a Go duration such as 500ms or 1m.
	// Default 10s; values of 0 or less mean the default. More than 1h is refused.
	Timeout *metav1.Duration
	// path is the URL path used with service. It begins with a slash.
	Path *string
	// service is the in-cluster Service to call when url is absent.
	Service *ServiceReference
	// etag lets the webhook return 304 Not Modified instead of repeating a response.
	Etag *WebhookEtagConfig
	// responseUnMarshallMode says how unknown and duplicate fields in the response are treated: loose ignores them, strict
	// rejects the response. Default: loose for version v1, strict for version v2.
	ResponseUnMarshallMode *ResponseUnmarshallMode

	WebhookSecurity
}

// WebhookSecurity is how the server and a webhook prove to each other who they are. If any of its fields is set on a
// webhook, endpointConfigs are not consulted for that webhook.
type WebhookSecurity struct {
	// caBundle are the certificate authorities trusted for the webhook's certificate, in place of the system's. Exactly one
	// source must be given. A referenced Secret or ConfigMap is watched; a new bundle is used from the next call on.
	CABundle *CABundle
	// clientTLS is the client certificate that is presented to the webhook. The Secret is watched; a renewed certificate is
	// used from the next connection on.
	ClientTLS *ClientTLS
	// authorization sends a credential from a Secret in the Authorization header. It excludes basicAuth.
	Authorization *WebhookAuthorization
	// basicAuth sends a user name and password from a Secret in the Authorization header. It excludes authorization.
	BasicAuth *WebhookBasicAuth
}

// WebhookEtagConfig configures the use of entity tags (RFC 9110 §8.8.3) with a webhook.
type WebhookEtagConfig struct {
	// enabled switches entity tags on: the tag of the last response for an object is sent in If-None-Match, and a status of
	// 304 or 412 stands for the last response's body. Default false.
	Enabled *bool
	// cacheTimeoutSeconds is how long a response is remembered, in seconds. Absent: as long as its object exists.
	CacheTimeoutSeconds *int32
	// cacheCleanupSeconds is accepted for compatibility. Expired responses are dropped without it.
	CacheCleanupSeconds *int32
}

// ServiceReference names a Service and a port of it.
type ServiceReference struct {
	// name of the Service. Required.
	Name string
	// namespace of the Service. Required.
	Namespace string
	// port of the Service, from 1 to 65535. Default 80.
	Port *int32
	// protocol is the URL scheme: http or https. Default http.
	Protocol *string
}

// EndpointConfig gives TLS and credentials to the webhooks on one host.
type EndpointConfig struct {
	// host is a host name, with or without port, compared with the webhook's URL without regard to case. A port may be left
	// out where the URL uses the default port of its scheme. Required.
	Host string

	WebhookSecurity
}

// CABundle is a set of PEM certificates. Exactly one of its sources must be given.
type CABundle struct {
	// inline is the PEM text itself, of at least one certificate.
	Inline *string
	// secretRef takes the PEM text from a key of a Secret.
	SecretRef *CABundleReference
	// configMapRef takes the PEM text from a key of a ConfigMap.
	ConfigMapRef *CABundleReference
}

// CABundleReference names a key of a Secret or ConfigMap that holds a CA bundle.
type CABundleReference struct {
	// name of the Secret or ConfigMap. Required.
	Name string
	// namespace of the Secret or ConfigMap. Required.
	Namespace string
	// key in its data. Default ca.crt.
	Key *string
}

// SecretReference names a Secret.
type SecretReference struct {
	// name of the Secret. Required.
	Name string
	// namespace of the Secret. Required.
	Namespace string
}

// ClientTLS is a client certificate with its private key, from one Secret.
type ClientTLS struct {
	// secretRef names the Secret.
	SecretRef SecretReference
	// certKey is the key of the PEM certificate in the Secret. Default tls.crt.
	CertKey *string
	// privateKeyKey is the key of the PEM private key in the Secret. Default tls.key.
	PrivateKeyKey *string
}

// WebhookAuthorization is a credential that is sent in the Authorization header.
type WebhookAuthorization struct {
	// type is the scheme in front of the credential. Default Bearer. Basic is rejected: use basicAuth.
	Type *string
	// secretRef names the key of a Secret that holds the credential. White space around it is removed.
	SecretRef SecretKeyReference
}

// SecretKeyReference names a key of a Secret.
type SecretKeyReference struct {
	// name of the Secret. Required.
	Name string
	// namespace of the Secret. Required.
	Namespace string
	// key in its data. Required.
	Key string
}

// WebhookBasicAuth is a user name with a password (RFC 7617), from one Secret.
type WebhookBasicAuth struct {
	// secretRef names the Secret.
	SecretRef SecretReference
	// usernameKey is the key of the user name in the Secret. Default username. The name must not hold a colon.
	UsernameKey *string
	// passwordKey is the key of the password in the Secret. Default password.
	PasswordKey *string
}
