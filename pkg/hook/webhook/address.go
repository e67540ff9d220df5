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
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

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
