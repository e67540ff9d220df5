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

package hooktest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
)

// post sends body to url and returns status and body of the response.
func post(t *testing.T, client *http.Client, url, body string) (status int, text string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

func TestTypedHandlers(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/composite", hooktest.Composite(func(r *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Status: map[string]any{"name": r.Parent.GetName(), "pods": len(r.Children.OfType("v1", "Pod"))}}, nil
	}))
	server.Handle("/decorator", hooktest.Decorator(func(r *hook.DecoratorRequest) (*hook.DecoratorResponse, error) {
		name := r.Object.GetName()
		return &hook.DecoratorResponse{Labels: map[string]*string{"name": &name}}, nil
	}))
	server.Handle("/customize", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{}, nil
	}))
	server.Handle("/failing", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return nil, errors.New("no idea")
	}))
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}`
	for path, tc := range map[string]struct {
		body, want string
		status     int
	}{
		"/composite": {`{"parent":` + pod + `,"children":{"Pod.v1":{"web":` + pod + `}}}`, `{"status":{"name":"web","pods":1},"children":null}`, 200},
		"/decorator": {`{"object":` + pod + `}`, `{"labels":{"name":"web"},"status":null,"attachments":null}`, 200},
		"/customize": {`{"parent":` + pod + `}`, `{"relatedResources":null}`, 200},
		"/failing":   {`{}`, "no idea\n", 500},
		"/unknown":   {`{}`, "404 page not found\n", 404},
	} {
		status, got, err := post(t, http.DefaultClient, server.URL(path), tc.body)
		if err != nil || status != tc.status || got != tc.want {
			t.Errorf("%s: got %d %q, %v, want %d %q", path, status, got, err, tc.status, tc.want)
		}
	}
	if status, _, err := post(t, http.DefaultClient, server.URL("/composite"), "nonsense"); err != nil || status != http.StatusBadRequest {
		t.Errorf("nonsense: got %d, %v, want 400", status, err)
	}
}

func TestRequestsAreRecordedInOrder(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Sequence(hooktest.JSON(1), hooktest.JSON(2)))
	var responses, bodies []string
	for _, body := range []string{"a", "b", "c"} {
		_, response, err := post(t, http.DefaultClient, server.URL("/sync"), body)
		if err != nil {
			t.Fatal(err)
		}
		responses = append(responses, response)
	}
	for _, r := range server.Await(t.Context(), "/sync", 3) {
		bodies = append(bodies, string(r.Body))
	}
	if diff := cmp.Diff([]string{"1", "2", "2"}, responses); diff != "" {
		t.Errorf("responses of the sequence (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, bodies); diff != "" {
		t.Errorf("recorded bodies (-want +got):\n%s", diff)
	}
	if n := len(server.Requests("/other")); n != 0 {
		t.Errorf("%d requests of another path", n)
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	server := hooktest.NewServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := server.Await(ctx, "/sync", 1); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestCertificates(t *testing.T) {
	trusting := func(s *hooktest.Server, certificates ...tls.Certificate) *http.Client {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(s.CABundle())) {
			t.Fatal("the CA bundle holds no certificate")
		}
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: certificates}}}
	}
	good, expired := hooktest.NewServer(t, hooktest.WithTLS()), hooktest.NewServer(t, hooktest.WithExpiredCertificate())
	other, mutual := hooktest.NewServer(t, hooktest.WithCertificateFor("hook.shop")), hooktest.NewServer(t, hooktest.WithClientCertificates())
	pair, err := tls.X509KeyPair(mutual.ClientCertificate())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		server *hooktest.Server
		client *http.Client
		ok     bool
	}{
		"Trusted":                  {good, trusting(good), true},
		"NotTrusted":               {good, trusting(expired), false},
		"Expired":                  {expired, trusting(expired), false},
		"OtherHost":                {other, trusting(other), false},
		"WithClientCertificate":    {mutual, trusting(mutual, pair), true},
		"WithoutClientCertificate": {mutual, trusting(mutual), false},
	} {
		if _, _, err := post(t, tc.client, tc.server.URL("/"), ""); (err == nil) != tc.ok {
			t.Errorf("%s: got %v, want success: %v", name, err, tc.ok)
		}
	}
}

func TestHugeResponsesAreValid(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Huge(1<<20))
	_, response, err := post(t, http.DefaultClient, server.URL("/sync"), "")
	if err != nil || len(response) < 1<<20 || !json.Valid([]byte(response)) {
		t.Errorf("got %d bytes, valid: %v, %v", len(response), json.Valid([]byte(response)), err)
	}
}
