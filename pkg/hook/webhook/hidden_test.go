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
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

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
