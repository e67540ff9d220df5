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

package hooks

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// secret creates a Secret of the stage's namespace, or changes its data.
func (s *stage) secret(name string, data map[string]string) {
	s.T.Helper()
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		o.Data[key] = []byte(value)
	}
	secrets := s.Kube.CoreV1().Secrets(s.Namespace)
	_, err := secrets.Update(s.T.Context(), o, metav1.UpdateOptions{})
	if err != nil {
		_, err = secrets.Create(s.T.Context(), o, metav1.CreateOptions{})
	}
	if err != nil {
		s.T.Fatalf("writing secret %s: %v", name, err)
	}
}

func (s *stage) bundle(name string) *v1alpha1.CABundleReference {
	return &v1alpha1.CABundleReference{Namespace: s.Namespace, Name: name}
}

func (s *stage) reference(name string) v1alpha1.SecretReference {
	return v1alpha1.SecretReference{Namespace: s.Namespace, Name: name}
}

// secured declares the sync hook with TLS and credentials.
func (s *stage) secured(security v1alpha1.WebhookSecurity) *v1alpha1.Hook {
	hook := s.at("/sync", v1)
	hook.Webhook.WebhookSecurity = security
	return hook
}

// testBundles is about the three sources of a CA bundle (docs/reference/contract.md#s1.5, docs/reference/contract.md#s2.2).
func testBundles(t *testing.T, s *shared, kind fixture.Kind) {
	for source, bundle := range map[string]func(*stage) *v1alpha1.CABundle{
		"Inline": func(st *stage) *v1alpha1.CABundle { return &v1alpha1.CABundle{Inline: new(st.Hook.CABundle())} },
		"Secret": func(st *stage) *v1alpha1.CABundle {
			st.secret("authority", map[string]string{"ca.crt": st.Hook.CABundle()})
			return &v1alpha1.CABundle{SecretRef: st.bundle("authority")}
		},
		"ConfigMap": func(st *stage) *v1alpha1.CABundle {
			st.create(fixture.ConfigMaps, st.Namespace, "authority", map[string]any{"data": map[string]any{"root": st.Hook.CABundle()}}, nil)
			reference := st.bundle("authority")
			reference.Key = new("root")
			return &v1alpha1.CABundle{ConfigMapRef: reference}
		},
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind, hooktest.WithTLS())
			st.Handle("/sync", fine())
			st.run(definition{sync: st.secured(v1alpha1.WebhookSecurity{CABundle: bundle(st)})})
			st.Parent("p", nil)
			st.awaitStatus("p", "done", "yes")
			st.calm("p")
		})
	}
}

// testTLSFaults is about what the events of a TLS connection that fails say.
func testTLSFaults(t *testing.T, s *shared, kind fixture.Kind) {
	stranger := hooktest.NewServer(t, hooktest.WithTLS())
	for name, tc := range map[string]struct {
		options  []hooktest.Option
		security func(*stage) v1alpha1.WebhookSecurity
		// text has ENDPOINT and HOST for the hook's.
		text string
	}{
		"no-bundle": {
			[]hooktest.Option{hooktest.WithTLS()},
			func(*stage) v1alpha1.WebhookSecurity { return v1alpha1.WebhookSecurity{} },
			"http error: calling ENDPOINT: certificate signed by unknown authority; set caBundle to the certificate authority of the hook",
		},
		"wrong-bundle": {
			[]hooktest.Option{hooktest.WithTLS()},
			func(*stage) v1alpha1.WebhookSecurity {
				return v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{Inline: new(stranger.CABundle())}}
			},
			"http error: calling ENDPOINT: certificate signed by unknown authority; set caBundle to the certificate authority of the hook",
		},
		"expired": {
			[]hooktest.Option{hooktest.WithExpiredCertificate()},
			bundled,
			"; renew the certificate of the hook, and compare the clocks",
		},
		"wrong-host": {
			[]hooktest.Option{hooktest.WithCertificateFor("hook.example.com")},
			bundled,
			"; add the host name to the certificate of the hook, or use a name that is in it",
		},
		"client-certificate-missing": {
			[]hooktest.Option{hooktest.WithClientCertificates()},
			bundled,
			"http error: calling ENDPOINT: remote error: tls: certificate required; the hook demands a client certificate that it knows; set clientTLS",
		},
		"client-certificate-of-a-stranger": {
			[]hooktest.Option{hooktest.WithClientCertificates()},
			func(st *stage) v1alpha1.WebhookSecurity {
				other := hooktest.NewServer(t, hooktest.WithClientCertificates())
				certificate, key := other.ClientCertificate()
				st.secret("client", map[string]string{"tls.crt": string(certificate), "tls.key": string(key)})
				security := bundled(st)
				security.ClientTLS = &v1alpha1.ClientTLS{SecretRef: st.reference("client")}
				return security
			},
			"http error: calling ENDPOINT: remote error: tls: unknown certificate authority; the hook does not accept the client " +
				"certificate; correct the Secret of clientTLS",
		},
		"no-key-in-the-secret": {
			[]hooktest.Option{hooktest.WithTLS()},
			func(st *stage) v1alpha1.WebhookSecurity {
				st.secret("authority", map[string]string{"other": "x"})
				return v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{SecretRef: st.bundle("authority")}}
			},
			"caBundle of the hook, Secret NAMESPACE/authority: it has no key ca.crt",
		},
		"no-certificate-in-the-secret": {
			[]hooktest.Option{hooktest.WithTLS()},
			func(st *stage) v1alpha1.WebhookSecurity {
				st.secret("authority", map[string]string{"ca.crt": "hello"})
				return v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{SecretRef: st.bundle("authority")}}
			},
			"caBundle of the hook, Secret NAMESPACE/authority: it holds no PEM certificate",
		},
		"key-of-another-certificate": {
			[]hooktest.Option{hooktest.WithClientCertificates()},
			func(st *stage) v1alpha1.WebhookSecurity {
				certificate, _ := st.Hook.ClientCertificate()
				_, key := hooktest.NewServer(t, hooktest.WithClientCertificates()).ClientCertificate()
				st.secret("client", map[string]string{"tls.crt": string(certificate), "tls.key": string(key)})
				security := bundled(st)
				security.ClientTLS = &v1alpha1.ClientTLS{SecretRef: st.reference("client")}
				return security
			},
			"clientTLS of the hook, Secret NAMESPACE/client: certificate and key cannot be used: tls: private key does not match public key",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind, tc.options...)
			st.Handle("/sync", fine())
			st.run(definition{sync: st.secured(tc.security(st))})
			st.Parent("p", nil)
			text := strings.NewReplacer("ENDPOINT", st.Hook.URL("/sync"), "NAMESPACE", st.Namespace).Replace(tc.text)
			st.syncError("p", text)
			if n := len(st.Requests("/sync")); n > 0 {
				t.Errorf("the hook got %d requests over a connection that is not safe", n)
			}
			st.onlyOneWarning("p")
		})
	}
}

// bundled trusts the authority of the stage's hook.
func bundled(st *stage) v1alpha1.WebhookSecurity {
	return v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{Inline: new(st.Hook.CABundle())}}
}

// onlyOneWarning fails the test if the Warning events about a parent are not all the same one.
func (s *stage) onlyOneWarning(name string) {
	s.T.Helper()
	var seen []string
	for _, e := range s.Events(name) {
		if e.Type == corev1.EventTypeWarning {
			seen = append(seen, e.Message)
		}
	}
	if len(seen) != 1 {
		s.T.Errorf("there are %d Warning events, want one that is counted:\n%s", len(seen), strings.Join(seen, "\n"))
	}
}

// testClientCertificate renews the certificate that the hook demands.
func testClientCertificate(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind, hooktest.WithClientCertificates())
	st.Handle("/sync", reporting(func(q question) map[string]any {
		round, _ := q.parent().Object["spec"].(map[string]any)["round"].(string)
		return map[string]any{"round": round}
	}))
	certificate, key := st.Hook.ClientCertificate()
	st.secret("client", map[string]string{"cert": string(certificate), "key": string(key)})
	security := bundled(st)
	security.ClientTLS = &v1alpha1.ClientTLS{SecretRef: st.reference("client"), CertKey: new("cert"), PrivateKeyKey: new("key")}
	// The endpoint's settings count where the webhook has none (docs/reference/contract.md#s2.4).
	st.run(definition{sync: st.at("/sync", v1), endpoints: []v1alpha1.EndpointConfig{
		{Host: "127.0.0.1", WebhookSecurity: v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{Inline: new("no match: the port is missing")}}},
		{Host: st.Hook.Host(), WebhookSecurity: security},
	}})
	st.Parent("p", map[string]any{"round": "1"})
	st.awaitStatus("p", "round", "1")
	st.secret("client", map[string]string{"cert": "broken", "key": string(key)})
	// Secrets and parents are watched apart: the parent may change before the server knows of the Secret, and is synced then.
	round := 1
	fault := "clientTLS of the hook, Secret " + st.Namespace +
		"/client: certificate and key cannot be used: tls: failed to find any PEM data in certificate input"
	cluster.Eventually(t, limit, "a sync without client certificate", func(context.Context) (bool, string) {
		round++
		st.Patch(fixture.Things, "p", fmt.Sprintf(`{"spec":{"round":"%d"}}`, round))
		return slices.ContainsFunc(st.Events("p"), func(e corev1.Event) bool { return strings.HasSuffix(e.Message, fault) }),
			fmt.Sprintf("round %d", round)
	})
	st.syncError("p", fault)
	st.secret("client", map[string]string{"cert": string(certificate), "key": string(key)})
	st.awaitStatus("p", "round", strconv.Itoa(round))
}

// testHeaders is about the Authorization header (docs/reference/contract.md#s2.3). A parent's hook reports it.
func testHeaders(t *testing.T, s *shared, kind fixture.Kind) {
	for name, tc := range map[string]struct {
		data     map[string]string
		security func(*stage) v1alpha1.WebhookSecurity
		// want is the header; or text is the event.
		want, text string
	}{
		"Bearer": {
			data: map[string]string{"token": " abc\n"},
			security: func(st *stage) v1alpha1.WebhookSecurity {
				return v1alpha1.WebhookSecurity{Authorization: st.authorization("token", "")}
			},
			want: "Bearer abc",
		},
		"AnotherType": {
			data: map[string]string{"token": "abc"},
			security: func(st *stage) v1alpha1.WebhookSecurity {
				return v1alpha1.WebhookSecurity{Authorization: st.authorization("token", " Token ")}
			},
			want: "Token abc",
		},
		"TokenMissing": {
			data: map[string]string{"other": "abc"},
			security: func(st *stage) v1alpha1.WebhookSecurity {
				return v1alpha1.WebhookSecurity{Authorization: st.authorization("token", "")}
			},
			text: "authorization of the hook, Secret NAMESPACE/login: it has no key token",
		},
		"Basic": {
			data: map[string]string{"username": "user \n", "password": "a:b\n"},
			security: func(st *stage) v1alpha1.WebhookSecurity {
				return v1alpha1.WebhookSecurity{BasicAuth: &v1alpha1.WebhookBasicAuth{SecretRef: st.reference("login")}}
			},
			want: "Basic dXNlcjphOmI=",
		},
		"BasicWithOtherKeys": {
			data: map[string]string{"u": "user", "p": "a:b"},
			security: func(st *stage) v1alpha1.WebhookSecurity {
				return v1alpha1.WebhookSecurity{BasicAuth: &v1alpha1.WebhookBasicAuth{
					SecretRef: st.reference("login"), UsernameKey: new("u"), PasswordKey: new("p"),
				}}
			},
			want: "Basic dXNlcjphOmI=",
		},
		"BasicWithAColonInTheName": {
			data: map[string]string{"username": "us:er", "password": "b"},
			security: func(st *stage) v1alpha1.WebhookSecurity {
				return v1alpha1.WebhookSecurity{BasicAuth: &v1alpha1.WebhookBasicAuth{SecretRef: st.reference("login")}}
			},
			text: "basicAuth of the hook, Secret NAMESPACE/login: the user name in key username holds a colon (RFC 7617 §2)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind)
			st.Handle("/sync", fine())
			st.secret("login", tc.data)
			st.run(definition{sync: st.secured(tc.security(st))})
			st.Parent("p", nil)
			if tc.text != "" {
				event := st.syncError("p", strings.ReplaceAll(tc.text, "NAMESPACE", st.Namespace))
				for _, secret := range tc.data {
					if len(secret) > 1 && strings.Contains(event.Message, strings.TrimSpace(secret)) {
						t.Errorf("the event shows a credential: %s", event.Message)
					}
				}
				return
			}
			st.awaitStatus("p", "done", "yes")
			if got := st.Requests("/sync")[0].Header.Get("Authorization"); got != tc.want {
				t.Errorf("the header is %q, want %q", got, tc.want)
			}
		})
	}
}

func (s *stage) authorization(key, scheme string) *v1alpha1.WebhookAuthorization {
	a := &v1alpha1.WebhookAuthorization{
		SecretRef: v1alpha1.SecretKeyReference{Namespace: s.Namespace, Name: "login", Key: key},
	}
	if scheme != "" {
		a.Type = &scheme
	}
	return a
}

// testMissingSecret is about docs/reference/compatibility.md#d2.3, docs/reference/compatibility.md#d1.5: a Secret that is missing at the start keeps nothing from
// running, and is used as soon as it is there.
func testMissingSecret(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	st.Handle("/sync", fine())
	st.run(definition{sync: st.secured(v1alpha1.WebhookSecurity{Authorization: st.authorization("token", "")})})
	st.Parent("p", nil)
	text := fmt.Sprintf("authorization of the hook, Secret %[1]s/login: secrets \"%[1]s/login\" not found", st.Namespace)
	st.syncError("p", text)
	st.mends("/sync", func() { st.secret("login", map[string]string{"token": "one"}) })
	st.awaitStatus("p", "done", "yes")
	st.onlyOneWarning("p")
}

// testRotation lets a hook refuse the old token: the new one is used at once.
func testRotation(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	st.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer two" {
			hooktest.Status(http.StatusUnauthorized, "who are you?").ServeHTTP(w, r)
			return
		}
		fine().ServeHTTP(w, r)
	}))
	st.secret("login", map[string]string{"token": "one"})
	st.run(definition{
		sync:         st.secured(v1alpha1.WebhookSecurity{Authorization: st.authorization("token", "")}),
		resyncPeriod: ptr.To[int32](3600),
	})
	st.Parent("p", nil)
	st.syncError("p", "unsupported status code: 401 body: who are you?")
	st.mends("/sync", func() { st.secret("login", map[string]string{"token": "two"}) })
	st.awaitStatus("p", "done", "yes")
}
