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

package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/destination"
)

const (
	// DefaultTimeout limits a call when the webhook does not say otherwise (docs/reference/contract.md#s1.5).
	DefaultTimeout = 10 * time.Second
	// DefaultMaxResponseBytes limits the size of a response.
	DefaultMaxResponseBytes = 32 << 20
	// DefaultMaxEtagBytes limits the responses that one client remembers by their entity tags.
	DefaultMaxEtagBytes = 64 << 20
	// DefaultWorkers is the number of calls that are expected at the same time.
	DefaultWorkers = 20
)

// Credentials gives access to the Secrets and ConfigMaps that webhooks refer to. Every call of a webhook reads all of its
// references, so it must return from memory after the first time. It is called from many goroutines.
type Credentials interface {
	// Secret returns the data of a Secret, and a version that changes when the data does. The data is not modified.
	Secret(ctx context.Context, namespace, name string) (version string, data map[string][]byte, err error)
	// ConfigMap returns the data of a ConfigMap, text and binary, and a version that changes when the data does.
	ConfigMap(ctx context.Context, namespace, name string) (version string, data map[string][]byte, err error)
}

// Config describes one hook of one controller.
type Config struct {
	// Hook is the hook to call. Required.
	Hook hook.Name
	// ControllerKind is CompositeController or DecoratorController. It goes into metrics. With ControllerName it tells whose turn it is in
	// ResponseBudget and RequestBudget.
	ControllerKind string
	// ControllerName is the controller's metadata.name.
	ControllerName string
	// Webhook is the hook's address and more. Required. It is not modified, and must not be.
	Webhook *v1alpha1.Webhook
	// EndpointConfigs are the controller's. One of them applies when Webhook has no security settings of its own.
	EndpointConfigs []v1alpha1.EndpointConfig
	// Credentials is required when Webhook or the endpoint config that applies refers to Secrets or ConfigMaps.
	Credentials Credentials
	// Workers is the number of calls at the same time for which idle connections are kept. Default [DefaultWorkers].
	Workers int
	// MaxResponseBytes is the size above which a response is rejected, after decompression. Default [DefaultMaxResponseBytes].
	MaxResponseBytes int64
	// MaxEtagBytes is the size of all responses that are remembered by their entity tags; the least recently used are
	// forgotten. Default [DefaultMaxEtagBytes].
	MaxEtagBytes int64
	// ResponseBudget bounds the bytes of responses that all clients which share it hold at once: those of more than 64 KiB, from
	// before they are read to their release. The sum of smaller ones is bounded by the number of concurrent syncs alone. Nil: there is no bound.
	ResponseBudget *fairqueue.Budget
	// RequestBudget bounds the bytes of requests that all clients which share it send at once: those of more than 64 KiB, until they are
	// written to the connection or their call ends. Of smaller ones the same is true as of responses. A client uses up to a quarter of it; a request that is larger counts as a quarter.
	// Nil: there is no bound.
	RequestBudget *fairqueue.Budget
	// EtagBudget bounds the bytes of responses that all clients which share it remember by their entity tags. Nil: there is no
	// bound but MaxEtagBytes.
	EtagBudget *fairqueue.Budget
	// Destinations are where hooks may be. Nil: where the nil policy allows them.
	Destinations *destination.Policy
	// RefuseRedirects says that no redirect is followed. Otherwise those within the same scheme, host and port are, and
	// those of the same host from http at port 80 to https at port 443.
	RefuseRedirects bool
	// ServerVersion goes into the User-Agent header. Default "unknown".
	ServerVersion string
	// Clock dates entity tags and Retry-After. Default: the real one.
	Clock clock.PassiveClock
	// Transport carries the calls in place of connections of the client's own, as a simulation does. Nil: connections of its own. It is
	// not closed, and knows nothing of the webhook's TLS settings.
	Transport http.RoundTripper
}

func (c *Config) setDefaults() {
	if c.Workers <= 0 {
		c.Workers = DefaultWorkers
	}
	if c.MaxResponseBytes <= 0 {
		c.MaxResponseBytes = DefaultMaxResponseBytes
	}
	if c.MaxEtagBytes <= 0 {
		c.MaxEtagBytes = DefaultMaxEtagBytes
	}
	c.ServerVersion = cmp.Or(c.ServerVersion, "unknown")
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}

// timeout returns the limit of one call. Values of 0 or less mean the default.
func (c *Config) timeout() time.Duration {
	if t := c.Webhook.Timeout; t != nil && t.Duration > 0 {
		return t.Duration
	}
	return DefaultTimeout
}

// validateSecurity finds what no Secret can correct. Admission rejects all of it as well; this guards objects that were stored
// before.
func validateSecurity(s *v1alpha1.WebhookSecurity) error {
	if s.Authorization != nil && s.BasicAuth != nil {
		return errors.New("authorization and basicAuth exclude each other; remove one of them")
	}
	if a := s.Authorization; a != nil && strings.EqualFold(authorizationType(a), "basic") {
		return errors.New("authorization.type must not be Basic; use basicAuth")
	}
	if a := s.Authorization; a != nil && !isHeaderValue(authorizationType(a)) {
		return errors.New("authorization.type holds characters that no header may hold, such as a line break")
	}
	if b := s.CABundle; b != nil {
		sources := 0
		for _, given := range []bool{b.Inline != nil, b.SecretRef != nil, b.ConfigMapRef != nil} {
			if given {
				sources++
			}
		}
		if sources != 1 {
			return fmt.Errorf("caBundle must have exactly one of inline, secretRef and configMapRef, has %d", sources)
		}
	}
	return nil
}

// address returns the URL of a webhook (docs/reference/contract.md#s2.1): url as it is written, or else one made of service and path.
func address(w *v1alpha1.Webhook) (*url.URL, error) {
	raw, err := rawAddress(w)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The error of url.Parse repeats the URL, which may hold a password.
		if parseError, ok := errors.AsType[*url.Error](err); ok {
			err = parseError.Err
		}
		return nil, fmt.Errorf("the webhook's URL cannot be parsed: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the webhook's URL has the scheme %q, want http or https", u.Scheme)
	}
	if u.Hostname() == "" {
		return nil, errors.New("the webhook's URL has no host")
	}
	return u, nil
}

func rawAddress(w *v1alpha1.Webhook) (string, error) {
	if ptr.Deref(w.URL, "") != "" {
		return *w.URL, nil
	}
	if w.Service == nil || w.Path == nil {
		return "", errors.New("the webhook must have either url, or both service and path")
	}
	s := w.Service
	if s.Name == "" || s.Namespace == "" {
		return "", errors.New("the webhook's service must have a name and a namespace")
	}
	// The port is always written, and nothing is put in front of the path: hooks were configured for that.
	return ptr.Deref(s.Protocol, "http") + "://" + s.Name + "." + s.Namespace + ":" + strconv.Itoa(int(ptr.Deref(s.Port, 80))) + *w.Path, nil
}

// display returns the URL without what may be secret: user, query and fragment.
func display(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return shown.String()
}

// effectiveSecurity returns the settings that apply to a webhook at u (docs/reference/contract.md#s2.4): its own if it has any, or else those
// of the first endpoint config for its host. There is no merging.
func effectiveSecurity(w *v1alpha1.Webhook, endpoints []v1alpha1.EndpointConfig, u *url.URL) (s v1alpha1.WebhookSecurity, at string) {
	if own := w.WebhookSecurity; own.CABundle != nil || own.ClientTLS != nil || own.Authorization != nil || own.BasicAuth != nil {
		return own, "webhook"
	}
	for i := range endpoints {
		if v1alpha1.EndpointMatches(endpoints[i].Host, u) {
			return endpoints[i].WebhookSecurity, fmt.Sprintf("endpointConfigs[%d]", i)
		}
	}
	return v1alpha1.WebhookSecurity{}, "webhook"
}
