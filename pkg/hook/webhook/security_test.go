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

package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

var errNotFound = errors.New("not found")

// store is credentials in memory, which can change. Keys are Secret/ns/name and ConfigMap/ns/name.
type store struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string][]byte
}

func (s *store) set(name string, data map[string]string) *store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects = map[string]map[string][]byte{}
	}
	s.version++
	s.objects[name] = map[string][]byte{}
	for k, v := range data {
		s.objects[name][k] = []byte(v)
	}
	return s
}

func (s *store) get(name string) (version string, data map[string][]byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.objects[name]
	if !ok {
		return "", nil, errNotFound
	}
	return fmt.Sprint(s.version), data, nil
}

func (s *store) Secret(_ context.Context, namespace, name string) (version string, data map[string][]byte, err error) {
	return s.get("Secret/" + namespace + "/" + name)
}

func (s *store) ConfigMap(_ context.Context, namespace, name string) (version string, data map[string][]byte, err error) {
	return s.get("ConfigMap/" + namespace + "/" + name)
}

func with(credentials webhook.Credentials, security v1alpha1.WebhookSecurity) func(*webhook.Config) {
	return func(c *webhook.Config) { c.Credentials, c.Webhook.WebhookSecurity = credentials, security }
}

// trusting gives a client the certificate authority of a server.
func trusting(s *hooktest.Server) func(*webhook.Config) {
	return func(c *webhook.Config) { c.Webhook.CABundle = &v1alpha1.CABundle{Inline: new(s.CABundle())} }
}

func TestAuthorizationHeader(t *testing.T) {
	token := func(authType *string) v1alpha1.WebhookSecurity {
		return v1alpha1.WebhookSecurity{Authorization: &v1alpha1.WebhookAuthorization{
			Type: authType, SecretRef: v1alpha1.SecretKeyReference{Namespace: "shop", Name: "token", Key: "value"},
		}}
	}
	basic := func(usernameKey, passwordKey *string) v1alpha1.WebhookSecurity {
		return v1alpha1.WebhookSecurity{BasicAuth: &v1alpha1.WebhookBasicAuth{
			SecretRef: v1alpha1.SecretReference{Namespace: "shop", Name: "login"}, UsernameKey: usernameKey, PasswordKey: passwordKey,
		}}
	}
	cases := map[string]struct {
		reason   string
		security v1alpha1.WebhookSecurity
		secret   string
		data     map[string]string
		want     string
		wantErr  string
	}{
		"Bearer":        {"Bearer is the default.", token(nil), "Secret/shop/token", map[string]string{"value": "abc"}, "Bearer abc", ""},
		"Trimmed":       {"White space around type and value is removed: Secrets are made from files that end with a newline.", token(new(" Token ")), "Secret/shop/token", map[string]string{"value": "\n abc \r\n"}, "Token abc", ""},
		"BlankType":     {"A blank type is the default.", token(new("  ")), "Secret/shop/token", map[string]string{"value": "abc"}, "Bearer abc", ""},
		"NoSecret":      {"A missing Secret is named.", token(nil), "Secret/shop/other", nil, "", "authorization of the hook, Secret shop/token: not found"},
		"NoKey":         {"A missing key is named.", token(nil), "Secret/shop/token", map[string]string{"other": "abc"}, "", "authorization of the hook, Secret shop/token: it has no key value"},
		"LineBreak":     {"A line break inside would split the header; the value is not shown.", token(nil), "Secret/shop/token", map[string]string{"value": "abc\nX-Evil: 1"}, "", "authorization of the hook, Secret shop/token: key value holds characters that no header may hold, such as a line break"},
		"Basic":         {"User name and password, trimmed.", basic(nil, nil), "Secret/shop/login", map[string]string{"username": " me\n", "password": "secret\n"}, "Basic bWU6c2VjcmV0", ""},
		"BasicKeys":     {"Other keys.", basic(new("u"), new("p")), "Secret/shop/login", map[string]string{"u": "me", "p": "a:b"}, "Basic bWU6YTpi", ""},
		"BasicColon":    {"A colon in the user name would move into the password.", basic(nil, nil), "Secret/shop/login", map[string]string{"username": "a:b", "password": "secret"}, "", "basicAuth of the hook, Secret shop/login: the user name in key username holds a colon (RFC 7617 §2)"},
		"BasicNoUser":   {"A missing user name.", basic(nil, nil), "Secret/shop/login", map[string]string{"password": "secret"}, "", "basicAuth of the hook, Secret shop/login: it has no key username"},
		"BasicNoPass":   {"A missing password.", basic(nil, nil), "Secret/shop/login", map[string]string{"username": "me"}, "", "basicAuth of the hook, Secret shop/login: it has no key password"},
		"BasicNoSecret": {"A missing Secret.", basic(nil, nil), "Secret/base/login", nil, "", "basicAuth of the hook, Secret shop/login: not found"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := hooktest.NewServer(t)
			server.Handle("/sync", hooktest.Body("", `{}`))
			client := newClient(t, configure(server.URL("/sync"), with((&store{}).set(tc.secret, tc.data), tc.security)))
			_, err := client.Call(t.Context(), fleet, []byte(`{}`))
			if checkErr := client.Check(t.Context()); fmt.Sprint(checkErr) != fmt.Sprint(err) {
				t.Errorf("%s\nCheck returns %v, Call %v", tc.reason, checkErr, err)
			}
			if tc.wantErr != "" {
				if _, ok := errors.AsType[*webhook.CredentialsError](err); !ok || err.Error() != tc.wantErr {
					t.Errorf("%s\ngot %T %v\nwant %s", tc.reason, err, err, tc.wantErr)
				}
				if n := len(server.Requests("/sync")); n != 0 {
					t.Errorf("%s\n%d calls were made without credentials", tc.reason, n)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := server.Requests("/sync")[0].Header.Get("Authorization"); got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestCABundleSources(t *testing.T) {
	server := hooktest.NewServer(t, hooktest.WithTLS())
	server.Handle("/sync", hooktest.Body("", `{}`))
	credentials := (&store{}).
		set("Secret/shop/ca", map[string]string{"ca.crt": server.CABundle(), "empty": "", "text": "no certificate"}).
		set("ConfigMap/shop/ca", map[string]string{"ca.crt": server.CABundle(), "bundle.pem": "# comment\n" + server.CABundle()})
	fromSecret := func(key *string) *v1alpha1.CABundle {
		return &v1alpha1.CABundle{SecretRef: &v1alpha1.CABundleReference{Namespace: "shop", Name: "ca", Key: key}}
	}
	fromConfigMap := func(key *string) *v1alpha1.CABundle {
		return &v1alpha1.CABundle{ConfigMapRef: &v1alpha1.CABundleReference{Namespace: "shop", Name: "ca", Key: key}}
	}
	const unknown = "certificate signed by unknown authority; set caBundle to the certificate authority of the hook"
	cases := map[string]struct {
		bundle *v1alpha1.CABundle
		want   string
	}{
		"Inline":         {&v1alpha1.CABundle{Inline: new(server.CABundle())}, ""},
		"Secret":         {fromSecret(nil), ""},
		"ConfigMap":      {fromConfigMap(nil), ""},
		"ConfigMapKey":   {fromConfigMap(new("bundle.pem")), ""},
		"None":           {nil, unknown},
		"MissingKey":     {fromSecret(new("tls.crt")), "caBundle of the hook, Secret shop/ca: it has no key tls.crt"},
		"EmptyKey":       {fromSecret(new("empty")), "caBundle of the hook, Secret shop/ca: it holds no PEM certificate"},
		"NoPEM":          {fromSecret(new("text")), "caBundle of the hook, Secret shop/ca: it holds no PEM certificate"},
		"InlineNoPEM":    {&v1alpha1.CABundle{Inline: new("nothing")}, "caBundle of the hook: it holds no PEM certificate"},
		"OtherAuthority": {&v1alpha1.CABundle{Inline: new(hooktest.NewServer(t, hooktest.WithTLS()).CABundle())}, unknown},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, configure(server.URL("/sync"), with(credentials, v1alpha1.WebhookSecurity{CABundle: tc.bundle})))
			got := ""
			if _, err := client.Call(t.Context(), fleet, []byte(`{}`)); err != nil {
				got = strings.TrimPrefix(err.Error(), "http error: calling "+server.URL("/sync")+": ")
			}
			if got != tc.want {
				t.Errorf("got %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestClientCertificate(t *testing.T) {
	server := hooktest.NewServer(t, hooktest.WithClientCertificates())
	server.Handle("/sync", hooktest.Body("", `{}`))
	certificate, key := server.ClientCertificate()
	foreign := hooktest.NewServer(t, hooktest.WithClientCertificates())
	foreignCertificate, foreignKey := foreign.ClientCertificate()
	credentials := (&store{}).
		set("Secret/shop/good", map[string]string{"tls.crt": string(certificate), "tls.key": string(key)}).
		set("Secret/shop/named", map[string]string{"cert": string(certificate), "key": string(key)}).
		set("Secret/shop/mixed", map[string]string{"tls.crt": string(certificate), "tls.key": string(foreignKey)}).
		set("Secret/shop/foreign", map[string]string{"tls.crt": string(foreignCertificate), "tls.key": string(foreignKey)})
	from := func(name string, certKey, keyKey *string) *v1alpha1.ClientTLS {
		return &v1alpha1.ClientTLS{SecretRef: v1alpha1.SecretReference{Namespace: "shop", Name: name}, CertKey: certKey, PrivateKeyKey: keyKey}
	}
	cases := map[string]struct {
		client *v1alpha1.ClientTLS
		want   string
	}{
		"Good":      {from("good", nil, nil), ""},
		"OtherKeys": {from("named", new("cert"), new("key")), ""},
		"NoKey":     {from("named", nil, nil), "clientTLS of the hook, Secret shop/named: it has no key tls.crt"},
		"Mixed":     {from("mixed", nil, nil), "clientTLS of the hook, Secret shop/mixed: certificate and key cannot be used: tls: private key does not match public key"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, configure(server.URL("/sync"), with(credentials, v1alpha1.WebhookSecurity{ClientTLS: tc.client}), trusting(server)))
			got := ""
			if _, err := client.Call(t.Context(), fleet, []byte(`{}`)); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q\nwant %q", got, tc.want)
			}
		})
	}
	for name, refused := range map[string]*v1alpha1.ClientTLS{"None": nil, "ForeignAuthority": from("foreign", nil, nil)} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, configure(server.URL("/sync"), with(credentials, v1alpha1.WebhookSecurity{ClientTLS: refused}), trusting(server)))
			_, err := client.Call(t.Context(), fleet, []byte(`{}`))
			if failed, ok := errors.AsType[*webhook.CallError](err); !ok || failed.Advice == "" {
				t.Errorf("got %v, want a CallError with advice", err)
			}
		})
	}
}

func TestCredentialsAreReloaded(t *testing.T) {
	old, renewed := hooktest.NewServer(t, hooktest.WithTLS()), hooktest.NewServer(t, hooktest.WithTLS())
	renewed.Handle("/sync", hooktest.Body("", `{}`))
	credentials := (&store{}).
		set("ConfigMap/shop/ca", map[string]string{"ca.crt": old.CABundle()}).
		set("Secret/shop/token", map[string]string{"value": "first"})
	client := newClient(t, configure(renewed.URL("/sync"), with(credentials, v1alpha1.WebhookSecurity{
		CABundle:      &v1alpha1.CABundle{ConfigMapRef: &v1alpha1.CABundleReference{Namespace: "shop", Name: "ca"}},
		Authorization: &v1alpha1.WebhookAuthorization{SecretRef: v1alpha1.SecretKeyReference{Namespace: "shop", Name: "token", Key: "value"}},
	})))
	if _, err := client.Call(t.Context(), fleet, []byte(`{}`)); err == nil {
		t.Fatal("a server of another authority was trusted")
	}
	credentials.set("ConfigMap/shop/ca", map[string]string{"ca.crt": renewed.CABundle()})
	call(t, client)
	call(t, client)
	// The version of the store changes for the bundle too, so that new connections are made. That is allowed: versions are
	// per object in the real one. What matters is the header.
	credentials.set("Secret/shop/token", map[string]string{"value": "second"})
	call(t, client)

	requests := renewed.Requests("/sync")
	var sent []string
	for _, r := range requests {
		sent = append(sent, r.Header.Get("Authorization"))
	}
	if diff := cmp.Diff([]string{"Bearer first", "Bearer first", "Bearer second"}, sent); diff != "" {
		t.Errorf("Authorization (-want +got):\n%s", diff)
	}
	if requests[0].Connection != requests[1].Connection {
		t.Error("a new connection was made without a change of credentials")
	}

	want := []webhook.Reference{{Kind: "ConfigMap", Namespace: "shop", Name: "ca"}, {Kind: "Secret", Namespace: "shop", Name: "token"}}
	if diff := cmp.Diff(want, client.References()); diff != "" {
		t.Errorf("References (-want +got):\n%s", diff)
	}
}

func TestEndpointConfigIsUsedForItsHost(t *testing.T) {
	server := hooktest.NewServer(t, hooktest.WithTLS())
	server.Handle("/sync", hooktest.Body("", `{}`))
	client := newClient(t, configure(server.URL("/sync"), func(c *webhook.Config) {
		c.EndpointConfigs = []v1alpha1.EndpointConfig{
			{Host: "other.shop"},
			{Host: server.Host(), WebhookSecurity: v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{Inline: new(server.CABundle())}}},
		}
	}))
	call(t, client)
}

func TestReferencesWithoutCredentialsAreAnError(t *testing.T) {
	client := newClient(t, configure("http://127.0.0.1:1/sync", with(nil, v1alpha1.WebhookSecurity{
		BasicAuth: &v1alpha1.WebhookBasicAuth{SecretRef: v1alpha1.SecretReference{Namespace: "shop", Name: "login"}},
	})))
	const want = "basicAuth of the hook, Secret shop/login: this server does not read credentials"
	if _, err := client.Call(t.Context(), fleet, nil); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
