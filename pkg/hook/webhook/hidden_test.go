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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
