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
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// withoutHooks is the warning of a definition that has neither a sync nor a finalize hook.
const withoutHooks = "without a sync or finalize hook the controller does not start"

func (w *warnings) aboutHooks(sync, finalize, customize *v1alpha1.Hook, endpoints []v1alpha1.EndpointConfig) {
	path := field.NewPath("spec", "hooks")
	switch {
	case sync == nil && finalize == nil:
		w.add(path, withoutHooks)
	case !called(sync) && !called(finalize):
		w.add(path, "without a sync or finalize hook that has a webhook every sync fails")
	case !called(sync):
		w.add(path.Child("sync"), "without a sync hook that has a webhook every sync fails of a parent that is selected and not being deleted")
	}
	used := make([]bool, len(endpoints))
	for _, hook := range []struct {
		*v1alpha1.Hook
		at *field.Path
	}{{sync, path.Child("sync")}, {finalize, path.Child("finalize")}, {customize, path.Child("customize")}} {
		switch {
		case hook.Hook == nil:
		case hook.Webhook == nil:
			w.add(hook.at.Child("webhook"), "without a webhook the hook is switched off")
		default:
			w.aboutWebhook(hook.Webhook, hook.at.Child("webhook"))
			w.aboutSecurity(hook.Webhook, hook.at.Child("webhook"), []*v1alpha1.Hook{sync, finalize, customize}, endpoints, used)
		}
	}
	w.aboutEndpoints(endpoints, used)
}

func called(hook *v1alpha1.Hook) bool {
	return hook != nil && hook.Webhook != nil
}

func (w *warnings) aboutWebhook(webhook *v1alpha1.Webhook, at *field.Path) {
	if webhook.URL != nil {
		if webhook.Service != nil || webhook.Path != nil {
			w.add(at.Child("service"), "service and path have no effect, because url is set")
		}
		w.aboutURL(addressOf(webhook), at.Child("url"))
	} else if webhook.Service != nil && webhook.Path != nil {
		w.aboutService(webhook.Service, *webhook.Path, at)
	}
	if timeout := webhook.Timeout; timeout != nil {
		switch {
		case timeout.Duration <= 0:
			w.add(at.Child("timeout"), "values of 0 or less mean the default of 10s")
		case timeout.Duration > longTimeout:
			w.add(at.Child("timeout"), "a call that hangs occupies one of the controller's workers for so long")
		}
	}
	w.aboutEtag(webhook.Etag, at.Child("etag"))
}

func (w *warnings) aboutURL(address *url.URL, at *field.Path) {
	if address == nil {
		return
	}
	if address.User != nil {
		w.add(at, "holds a user or password, which every reader of the controller sees: use basicAuth")
	}
	if address.Fragment != "" {
		w.add(at, "what follows # is not sent")
	}
	host := address.Hostname()
	ip, err := netip.ParseAddr(host)
	if err != nil && host != "" && !strings.Contains(host, ".") && !strings.EqualFold(host, "localhost") {
		w.add(at, host+" is looked up in the namespace of this server: write "+host+".NAMESPACE")
	}
	if err == nil && (ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast()) {
		w.add(at, "no hook should be at a link-local or unspecified address: clouds serve credentials of nodes at such")
	}
}

func (w *warnings) aboutService(service *v1alpha1.ServiceReference, path string, at *field.Path) {
	if service.Name != strings.ToLower(service.Name) {
		w.add(at.Child("service", "name"), "names of Services are in lower case")
	}
	if service.Namespace != strings.ToLower(service.Namespace) {
		w.add(at.Child("service", "namespace"), "names of namespaces are in lower case")
	}
	if strings.ContainsAny(path, "?#@") || slices.Contains(strings.Split(path, "/"), "..") {
		w.add(at.Child("path"), "has ?, #, @ or .. in it, and is used as it is: such an address belongs into url")
	}
}

func (w *warnings) aboutEtag(etag *v1alpha1.WebhookEtagConfig, at *field.Path) {
	if etag == nil {
		return
	}
	if !ptr.Deref(etag.Enabled, false) {
		if etag.CacheTimeoutSeconds != nil || etag.CacheCleanupSeconds != nil {
			w.add(at, "has no effect without enabled: true")
		}
		return
	}
	if seconds := etag.CacheTimeoutSeconds; seconds != nil && *seconds < 1 {
		w.add(at.Child("cacheTimeoutSeconds"), "values below 1 mean that responses do not expire")
	}
	if seconds := etag.CacheCleanupSeconds; seconds != nil && *seconds < 1 {
		w.add(at.Child("cacheCleanupSeconds"), "has no effect: expired responses are dropped without it")
	}
}

// aboutSecurity warns of what the addresses make useless or dangerous, and marks the endpoint that is used. An endpoint may be that of several
// hooks, by http and by https.
func (w *warnings) aboutSecurity(
	webhook *v1alpha1.Webhook, at *field.Path, hooks []*v1alpha1.Hook, endpoints []v1alpha1.EndpointConfig, used []bool,
) {
	security, users := &webhook.WebhookSecurity, []*v1alpha1.Webhook{webhook}
	if i := endpointOf(webhook, endpoints); i >= 0 {
		if used[i] {
			return // Said already.
		}
		used[i], users = true, nil
		for _, hook := range hooks {
			if called(hook) && endpointOf(hook.Webhook, endpoints) == i {
				users = append(users, hook.Webhook)
			}
		}
		security, at = &endpoints[i].WebhookSecurity, field.NewPath("spec", "endpointConfigs").Index(i)
	}
	w.aboutValues(security, at)
	plain, secure, redirected := false, false, false
	for _, user := range users {
		switch address := addressOf(user); {
		case address == nil:
		case address.Scheme == "http":
			plain = true
			// From there a redirect to https is followed, with the same TLS settings.
			redirected = redirected || address.Port() == "" || address.Port() == "80"
		default:
			secure = true
		}
	}
	if !plain {
		return
	}
	unused, readable := "has no effect, because the hook is not called by https", "is sent unencrypted, because the hook is not called by https"
	if redirected {
		unused = "has no effect unless the hook redirects to https, because it is not called by https"
	}
	for _, setting := range []struct {
		set           bool
		name, message string
	}{
		{security.CABundle != nil && !secure, "caBundle", unused},
		{security.ClientTLS != nil && !secure, "clientTLS", unused},
		{security.Authorization != nil, "authorization", readable},
		{security.BasicAuth != nil, "basicAuth", readable},
	} {
		if setting.set {
			w.add(at.Child(setting.name), setting.message)
		}
	}
}

// aboutValues warns of what readers of the controller should not see, and of certificates that are passed over.
func (w *warnings) aboutValues(security *v1alpha1.WebhookSecurity, at *field.Path) {
	if a := security.Authorization; a != nil && strings.ContainsAny(strings.TrimSpace(ptr.Deref(a.Type, "")), " \t:=,;") {
		w.add(at.Child("authorization", "type"), "is more than the name of a scheme, and every reader of the controller sees it")
	}
	if bundle := security.CABundle; bundle != nil && bundle.Inline != nil {
		found, path := readPEM(*bundle.Inline), at.Child("caBundle", "inline")
		if found.keys > 0 {
			w.add(path, "holds a private key, which every reader of the controller sees")
		}
		if found.unusable > 0 {
			w.add(path, "holds blocks that are not certificates or cannot be parsed; they are passed over")
		}
	}
}

func (w *warnings) aboutEndpoints(endpoints []v1alpha1.EndpointConfig, used []bool) {
	path := field.NewPath("spec", "endpointConfigs")
	for i := range bounded(endpoints) {
		above := slices.ContainsFunc(endpoints[:i], func(e v1alpha1.EndpointConfig) bool {
			return strings.EqualFold(e.Host, endpoints[i].Host)
		})
		switch {
		case above:
			w.add(path.Index(i).Child("host"), "is listed above: this entry is never used")
		case strings.ContainsAny(endpoints[i].Host, "/@?#* "):
			w.add(path.Index(i).Child("host"), "is not a host with or without port, and matches no hook")
		case !used[i]:
			w.add(path.Index(i), "no hook of this controller uses this entry")
		case !secures(&endpoints[i].WebhookSecurity):
			w.add(path.Index(i), "sets none of caBundle, clientTLS, authorization and basicAuth")
		}
	}
}
