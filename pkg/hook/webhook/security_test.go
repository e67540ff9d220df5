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
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
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

// echoing are hooks that return the credentials that they were sent, in every way that ends in a message.
func echoing() map[string]http.Handler {
	credentials := func(r *http.Request) string { return r.Header.Get("Authorization") + " " + r.URL.RawQuery }
	raw := func(head string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			defer connection.Close() //nolint:errcheck // it is meant to break
			_, _ = io.WriteString(connection, strings.ReplaceAll(head, "CREDENTIALS", credentials(r)))
		})
	}
	status := func(contentType string, before int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, strings.Repeat("x", before)+credentials(r))
		})
	}
	body := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "CREDENTIALS", credentials(r)))
		})
	}
	return map[string]http.Handler{
		"error":            status("text/plain", 0),
		"error cut short":  status("text/plain", 180),
		"error at the end": status("text/html", 4<<10-15),
		"content type": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", credentials(r))
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "x")
		}),
		"redirect": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://192.0.2.1/"+credentials(r))
			w.WriteHeader(http.StatusTemporaryRedirect)
		}),
		"redirect to nowhere": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://192.0.2.1:"+credentials(r))
			w.WriteHeader(http.StatusTemporaryRedirect)
		}),
		"malformed":   raw("HTTP/1.1 200 OK\r\nCREDENTIALS\r\n\r\n"),
		"not HTTP":    raw("CREDENTIALS\r\n\r\n"),
		"length":      raw("HTTP/1.1 200 OK\r\nContent-Length: CREDENTIALS\r\n\r\n"),
		"encoding":    raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: CREDENTIALS\r\n\r\n"),
		"chunk":       raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nCREDENTIALS\r\n"),
		"status line": raw("HTTP/1.1 CREDENTIALS\r\n\r\n"),
		"gzip":        raw("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 11\r\n\r\nCREDENTIALS"),
		"closed":      hooktest.Closed(),
		"slow":        hooktest.SlowDrip(10 * time.Millisecond),
		"page":        body("CREDENTIALS"),
		"key":         body(`{"CREDENTIALS":1}`),
		"value":       body(`{"children":"CREDENTIALS"}`),
		"child":       body(`{"children":[{"apiVersion":"v1","kind":{"CREDENTIALS":1}}]}`),
	}
}

// TestNoMessageShowsCredentials calls hooks that return what they were sent. No error shows it, and it is returned as a hook that
// answers well is.
func TestNoMessageShowsCredentials(t *testing.T) {
	const secret = "s3cr3t-Of-The/Hook+"
	forms := []string{secret, base64.StdEncoding.EncodeToString([]byte("me:" + secret)), secret[:12], base64.StdEncoding.EncodeToString([]byte("me:" + secret))[:12]}
	credentials := (&store{}).set("Secret/shop/login", map[string]string{"username": "me", "password": secret})
	for use, security := range map[string]v1alpha1.WebhookSecurity{
		"authorization": {Authorization: &v1alpha1.WebhookAuthorization{SecretRef: v1alpha1.SecretKeyReference{Namespace: "shop", Name: "login", Key: "password"}}},
		"basicAuth":     {BasicAuth: &v1alpha1.WebhookBasicAuth{SecretRef: v1alpha1.SecretReference{Namespace: "shop", Name: "login"}}},
		"url":           {},
	} {
		for name, handler := range echoing() {
			t.Run(use+"/"+name, func(t *testing.T) {
				server := hooktest.NewServer(t)
				server.Handle("/sync", handler)
				limit := time.Minute
				if name == "slow" {
					limit = 200 * time.Millisecond
				}
				url := server.URL("/sync")
				if use == "url" {
					url = strings.Replace(url, "http://", "http://me:s3cr3t-Of-The%2FHook+@", 1) + "?token=" + secret
				}
				client := newClient(t, configure(url, with(credentials, security), withTimeout(limit)))
				response, err := client.Call(t.Context(), fleet, []byte(`{}`))
				if err == nil {
					var decoded wire.Response
					if decoded, err = wire.DecodeComposite(response.Body, wire.ResponseOptions{ContentType: response.ContentType, Strict: true}); err == nil {
						_, err = decoded.Children()
					}
					err = response.Hide(err)
				}
				if err == nil {
					t.Fatal("the response passed")
				}
				for _, form := range forms {
					if shown := fmt.Sprintf("%v %s", err, client.Endpoint()); strings.Contains(shown, form) {
						t.Errorf("%q is in %s", form, shown)
					}
				}
			})
		}
	}
}

// TestNoShownResponseHasCredentials calls hooks that return what they were sent, in keys, in values, and in other ways to write them.
func TestNoShownResponseHasCredentials(t *testing.T) {
	const secret = `s3cr3t<"of"&the>/Hook+`
	credentials := (&store{}).set("Secret/shop/login", map[string]string{"password": secret})
	escaped := &strings.Builder{}
	for _, r := range secret {
		fmt.Fprintf(escaped, `\u%04x`, r)
	}
	for name, body := range map[string]string{
		"escaped":   `{"status":{"kept":1.50,"echo":["Bearer ` + escaped.String() + `"]}}`,
		"a key":     `{"status":{"kept":1.50,"` + escaped.String() + `":{}}}`,
		"cut short": `{"status":{"kept":1.50,"echo":"` + secret[:7] + `"}}`,
		"plain":     `{"status":{"kept":1.50,"echo":` + strconv.Quote(secret) + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			server := hooktest.NewServer(t)
			server.Handle("/sync", hooktest.Body("", body))
			client := newClient(t, configure(server.URL("/sync"), with(credentials, v1alpha1.WebhookSecurity{Authorization: &v1alpha1.WebhookAuthorization{
				SecretRef: v1alpha1.SecretKeyReference{Namespace: "shop", Name: "login", Key: "password"},
			}})))
			response, err := client.Ask(t.Context(), []byte(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Release()
			shown, err := response.HideJSON(response.Body)
			if err != nil || !strings.Contains(string(shown), "(hidden)") || !strings.Contains(string(shown), `"kept":1.50`) {
				t.Errorf("shown is %s, error %v", shown, err)
			}
			if strings.Contains(string(shown), "s3cr3t") || strings.Contains(string(shown), "Hook+") {
				t.Errorf("the credentials are in %s", shown)
			}
			if _, err := response.HideJSON([]byte("{")); err == nil {
				t.Error("no JSON is taken")
			}
		})
	}
}

// inJSON returns a text within a JSON object.
func inJSON(text string) string {
	data, err := json.Marshal(map[string]string{"sent": text})
	if err != nil {
		panic(err)
	}
	return string(data)
}

// TestNoMessageShowsCredentialsInOtherForms calls hooks that write what they were sent as JSON, quoted and escaped.
func TestNoMessageShowsCredentialsInOtherForms(t *testing.T) {
	forms := map[string]func(string) string{
		"as it is":   func(s string) string { return s },
		"JSON":       inJSON,
		"JSON twice": func(s string) string { return inJSON(inJSON(s)) },
		"JSON thrice": func(s string) string {
			return inJSON(inJSON(inJSON(s)))
		},
		"JSON without HTML": func(s string) string {
			return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(inJSON(s))
		},
		"JSON in ASCII": func(s string) string {
			return strings.NewReplacer("é", `\u00e9`, "😀", `\ud83d\ude00`).Replace(inJSON(s))
		},
		"JSON in upper case": func(s string) string {
			return strings.NewReplacer(`\u003c`, `\u003C`, `\u003e`, `\u003E`).Replace(inJSON(s))
		},
		"quoted":          strconv.Quote,
		"quoted in ASCII": strconv.QuoteToASCII,
		"query":           url.QueryEscape,
		"path":            url.PathEscape,
		"cut short":       func(s string) string { return s[:len(s)-2] },
	}
	for name, secret := range map[string]string{
		"quote": `s3cr3tA"longtail`, "HTML": `s3cr3t<&>longtail`, "other letters": "s3cr3té😀longtail", "at the beginning": `"é<😀>&longtail`,
		"backslash": `s3cr3t\longtail`, "percent": "s3cr3t%longtail",
	} {
		credentials := (&store{}).set("Secret/shop/login", map[string]string{"username": "me", "password": secret})
		login := v1alpha1.WebhookSecurity{BasicAuth: &v1alpha1.WebhookBasicAuth{SecretRef: v1alpha1.SecretReference{Namespace: "shop", Name: "login"}}}
		for form, write := range forms {
			t.Run(name+"/"+form, func(t *testing.T) {
				server := hooktest.NewServer(t)
				server.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, password, _ := r.BasicAuth()
					w.Header().Set("Content-Type", "text/plain")
					w.WriteHeader(http.StatusInternalServerError)
					_, _ = io.WriteString(w, "the password "+write(password)+" is wrong")
				}))
				_, err := newClient(t, configure(server.URL("/sync"), with(credentials, login))).Call(t.Context(), fleet, []byte(`{}`))
				if err == nil || strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "longta") {
					t.Errorf("the password is in %v", err)
				}
				if err == nil || !strings.Contains(err.Error(), "the password ") || !strings.HasSuffix(err.Error(), " is wrong") {
					t.Errorf("more than the password is hidden in %v", err)
				}
			})
		}
	}
}

// TestNoMessageShowsPartsOfTheURL calls hooks that return parts of their URL.
func TestNoMessageShowsPartsOfTheURL(t *testing.T) {
	for name, tc := range map[string]struct {
		user, query string
		echo        func(*http.Request) string
	}{
		"a query as it is":         {query: "token=S%20ECRETPART", echo: func(r *http.Request) string { return r.URL.RawQuery }},
		"a query decoded":          {query: "token=S%20ECRETPART", echo: func(r *http.Request) string { return "token=" + r.URL.Query().Get("token") }},
		"a value":                  {query: "token=S%20ECRETPART", echo: func(r *http.Request) string { return r.URL.Query().Get("token") }},
		"values":                   {query: "a=1&token=S+ECRETPART", echo: func(r *http.Request) string { return fmt.Sprint(r.URL.Query()) }},
		"a value in JSON":          {query: "token=S%22%20ECRETPART", echo: func(r *http.Request) string { return inJSON(r.URL.Query().Get("token")) }},
		"a user":                   {user: "ECRETPART-user", echo: func(r *http.Request) string { user, _, _ := r.BasicAuth(); return user }},
		"a user as sent":           {user: "ECRETPART-user", echo: func(r *http.Request) string { return r.Header.Get("Authorization") }},
		"a user and no password":   {user: "ECRETPART-user:", echo: func(r *http.Request) string { user, _, _ := r.BasicAuth(); return user }},
		"a user that is escaped":   {user: "ECRETPART%2Fuser", echo: func(r *http.Request) string { user, _, _ := r.BasicAuth(); return url.QueryEscape(user) }},
		"a password that is short": {user: "someone:ECRETP", echo: func(r *http.Request) string { _, word, _ := r.BasicAuth(); return word }},
	} {
		t.Run(name, func(t *testing.T) {
			server := hooktest.NewServer(t)
			server.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Error(w, "sent: "+tc.echo(r), http.StatusForbidden)
			}))
			address := server.URL("/sync") + "?" + tc.query
			if tc.user != "" {
				address = strings.Replace(address, "http://", "http://"+tc.user+"@", 1)
			}
			_, err := newClient(t, configure(address)).Call(t.Context(), fleet, []byte(`{}`))
			if err == nil || !strings.Contains(err.Error(), "sent: ") || strings.Contains(err.Error(), "ECRETP") ||
				strings.Contains(err.Error(), base64.StdEncoding.EncodeToString([]byte("ECRETPART-user:"))) {
				t.Errorf("got %v", err)
			}
		})
	}
}
