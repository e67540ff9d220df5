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
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/destination"
)

func service(name, namespace string) *v1alpha1.ServiceReference {
	return &v1alpha1.ServiceReference{Name: name, Namespace: namespace}
}

func TestAddress(t *testing.T) {
	withPort := service("hook", "shop")
	withPort.Port, withPort.Protocol = new(int32(8443)), new("https")
	ftp := service("hook", "shop")
	ftp.Protocol = new("ftp")
	cases := map[string]struct {
		reason  string
		webhook v1alpha1.Webhook
		want    string
		wantErr string
	}{
		"URL":             {"A URL is used as written.", v1alpha1.Webhook{URL: new("http://hello-controller.hello/sync?x=1")}, "http://hello-controller.hello/sync?x=1", ""},
		"URLWins":         {"A URL wins over a service.", v1alpha1.Webhook{URL: new("https://a/b"), Service: service("hook", "shop"), Path: new("/sync")}, "https://a/b", ""},
		"Service":         {"Port 80 and http are the defaults, the port is always written, and there is no .svc.", v1alpha1.Webhook{Service: service("hook", "shop"), Path: new("/sync")}, "http://hook.shop:80/sync", ""},
		"ServicePort":     {"Port and protocol are taken over.", v1alpha1.Webhook{Service: withPort, Path: new("/sync")}, "https://hook.shop:8443/sync", ""},
		"EmptyPath":       {"An empty path is a path.", v1alpha1.Webhook{Service: service("hook", "shop"), Path: new("")}, "http://hook.shop:80", ""},
		"Nothing":         {"There must be an address.", v1alpha1.Webhook{}, "", "the webhook must have either url, or both service and path"},
		"PathOnly":        {"A path alone is no address.", v1alpha1.Webhook{Path: new("/sync")}, "", "the webhook must have either url, or both service and path"},
		"ServiceOnly":     {"A service alone is no address.", v1alpha1.Webhook{Service: service("hook", "shop")}, "", "the webhook must have either url, or both service and path"},
		"NoNamespace":     {"A service has a namespace.", v1alpha1.Webhook{Service: service("hook", ""), Path: new("/")}, "", "the webhook's service must have a name and a namespace"},
		"NoName":          {"A service has a name.", v1alpha1.Webhook{Service: service("", "shop"), Path: new("/")}, "", "the webhook's service must have a name and a namespace"},
		"Protocol":        {"Only HTTP can be spoken.", v1alpha1.Webhook{Service: ftp, Path: new("/")}, "", `the webhook's URL has the scheme "ftp", want http or https`},
		"NoHost":          {"A URL needs a host.", v1alpha1.Webhook{URL: new("http:///sync")}, "", "the webhook's URL has no host"},
		"RelativeURL":     {"A URL is absolute.", v1alpha1.Webhook{URL: new("/sync")}, "", `the webhook's URL has the scheme "", want http or https`},
		"UnparseableURL":  {"What cannot be parsed is not repeated: it may hold a password.", v1alpha1.Webhook{URL: new("http://u:secret@h:port/")}, "", `the webhook's URL cannot be parsed: invalid port ":port" after host`},
		"PathWithoutRoot": {"Nothing is put between port and path, so a path without a slash breaks the port.", v1alpha1.Webhook{Service: service("hook", "shop"), Path: new("sync")}, "", `the webhook's URL cannot be parsed: invalid port ":80sync" after host`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, gotErr := "", ""
			u, err := address(&tc.webhook)
			if err != nil {
				gotErr = err.Error()
			} else {
				got = u.String()
			}
			if got != tc.want || gotErr != tc.wantErr {
				t.Errorf("%s\ngot %q, %q\nwant %q, %q", tc.reason, got, gotErr, tc.want, tc.wantErr)
			}
		})
	}
}

func TestDisplayLeavesOutWhatMayBeSecret(t *testing.T) {
	u, err := url.Parse("https://user:secret@hook.shop:8443/sync?token=secret#secret")
	if err != nil {
		t.Fatal(err)
	}
	if got := display(u); got != "https://hook.shop:8443/sync" {
		t.Errorf("got %q", got)
	}
}

// TestHostMatches is the matrix of docs/reference/contract.md#s2.4.
func TestHostMatches(t *testing.T) {
	cases := []struct {
		entry, url string
		want       bool
	}{
		{"hook.shop", "http://hook.shop/sync", true},
		{"HOOK.shop", "http://hook.SHOP/sync", true},
		{"hook.shop:80", "http://hook.shop/sync", true},
		{"hook.shop:443", "https://hook.shop/sync", true},
		{"hook.shop", "http://hook.shop:80/sync", true},
		{"hook.shop", "https://hook.shop:443/sync", true},
		{"hook.shop:8080", "http://hook.shop:8080/sync", true},
		{"[::1]", "https://[::1]:443/sync", true},
		{"[::1]:443", "https://[::1]/sync", true},
		{"hook.shop:443", "http://hook.shop/sync", false},
		{"hook.shop:80", "https://hook.shop/sync", false},
		{"hook.shop", "http://hook.shop:443/sync", false},
		{"hook.shop", "https://hook.shop:80/sync", false},
		{"hook.shop", "http://hook.shop:8080/sync", false},
		{"hook.shop:8080", "http://hook.shop/sync", false},
		{"hook", "http://hook.shop/sync", false},
		{"hook.shop", "http://hook.shop.svc/sync", false},
		{"*.shop", "http://hook.shop/sync", false},
		{"", "http://hook.shop/sync", false},
		{"http://hook.shop", "http://hook.shop/sync", false},
	}
	for _, tc := range cases {
		u, err := url.Parse(tc.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := v1alpha1.EndpointMatches(tc.entry, u); got != tc.want {
			t.Errorf("entry %q, URL %s: got %v, want %v", tc.entry, tc.url, got, tc.want)
		}
	}
}

func TestEffectiveSecurity(t *testing.T) {
	bundle := func(pem string) v1alpha1.WebhookSecurity {
		return v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{Inline: &pem}}
	}
	basic := v1alpha1.WebhookSecurity{BasicAuth: &v1alpha1.WebhookBasicAuth{}}
	endpoints := []v1alpha1.EndpointConfig{
		{Host: "other.shop", WebhookSecurity: bundle("other")},
		{Host: "hook.shop", WebhookSecurity: bundle("first")},
		{Host: "hook.shop:80", WebhookSecurity: bundle("second")},
	}
	cases := map[string]struct {
		reason  string
		webhook v1alpha1.Webhook
		want    v1alpha1.WebhookSecurity
		wantAt  string
	}{
		"FirstMatch": {"The first entry that matches is taken.", v1alpha1.Webhook{URL: new("http://hook.shop/sync")}, bundle("first"), "endpointConfigs[1]"},
		"Service":    {"A service on the default port matches the bare name.", v1alpha1.Webhook{Service: service("hook", "shop"), Path: new("/sync")}, bundle("first"), "endpointConfigs[1]"},
		"OwnWins":    {"One setting of its own keeps all endpoint configs out; nothing is merged.", v1alpha1.Webhook{URL: new("http://hook.shop/sync"), WebhookSecurity: basic}, basic, "webhook"},
		"NoMatch":    {"Without a match there are no settings.", v1alpha1.Webhook{URL: new("http://third.shop/sync")}, v1alpha1.WebhookSecurity{}, "webhook"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u, err := address(&tc.webhook)
			if err != nil {
				t.Fatal(err)
			}
			got, at := effectiveSecurity(&tc.webhook, endpoints, u)
			if diff := cmp.Diff(tc.want, got); diff != "" || at != tc.wantAt {
				t.Errorf("%s\n(-want +got):\n%s\nat %s, want %s", tc.reason, diff, at, tc.wantAt)
			}
		})
	}
}

// TestPlacesAreCheckedWhereNoProxyIs is about an environment with a proxy for http and none for https.
func TestPlacesAreCheckedWhereNoProxyIs(t *testing.T) {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "http", Host: "hook.shop"}})
	if err != nil || proxy == nil {
		t.Fatal(proxy, err)
	}
	inPod, err := destination.New(destination.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for hook, tc := range map[string]struct{ proxied, direct bool }{
		"http://hook.shop/sync":      {proxied: true},
		"http://hook.shop:80/sync":   {proxied: true},
		"http://hook.shop:8080/sync": {proxied: true, direct: true}, // No redirect leads from there to https.
		"https://hook.shop/sync":     {},
	} {
		u, err := url.Parse(hook)
		if err != nil {
			t.Fatal(err)
		}
		dial := (&Client{config: Config{Destinations: inPod}, url: u}).dial()
		connection, err := dial(t.Context(), "tcp", proxy.Host)
		if err == nil {
			err = connection.Close()
		}
		if _, refused := errors.AsType[*destination.RefusedError](err); refused == tc.proxied || !refused && err != nil {
			t.Errorf("%s: connecting to the proxy: %v, want a refusal: %t", hook, err, !tc.proxied)
		}
		connection, err = dial(t.Context(), "tcp", "127.0.0.1:1") // Nothing listens there.
		if err == nil {
			t.Error(connection.Close())
		}
		if _, refused := errors.AsType[*destination.RefusedError](err); refused == tc.direct {
			t.Errorf("%s: connecting to the hook: %v, want a refusal: %t", hook, err, !tc.direct)
		}
	}
}

func TestValidateSecurity(t *testing.T) {
	cases := map[string]struct {
		security v1alpha1.WebhookSecurity
		want     string
	}{
		"Nothing":   {v1alpha1.WebhookSecurity{}, ""},
		"BothAuths": {v1alpha1.WebhookSecurity{Authorization: &v1alpha1.WebhookAuthorization{}, BasicAuth: &v1alpha1.WebhookBasicAuth{}}, "authorization and basicAuth exclude each other"},
		"BasicType": {v1alpha1.WebhookSecurity{Authorization: &v1alpha1.WebhookAuthorization{Type: new(" bAsIc ")}}, "use basicAuth"},
		"NoSource":  {v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{}}, "exactly one of inline, secretRef and configMapRef, has 0"},
		"TwoSources": {
			v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{Inline: new(""), SecretRef: &v1alpha1.CABundleReference{}}},
			"exactly one of inline, secretRef and configMapRef, has 2",
		},
	}
	for name, tc := range cases {
		err := validateSecurity(&tc.security)
		if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}
