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

package apiserver_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	groupPath  = "/apis/metacontroller.k8s.io/v1alpha1"
	composites = groupPath + "/compositecontrollers"
	decorators = groupPath + "/decoratorcontrollers"
)

type answer struct {
	status   int
	media    string
	warnings []string
	body     string
}

// message is that of a metav1.Status.
func (a answer) message(t *testing.T) string {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(a.body), &status); err != nil {
		t.Fatalf("the answer is no status: %v\n%s", err, a.body)
	}
	return status.Message
}

// ask sends one request, with headers as pairs of name and value.
func ask(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(shared)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, shared.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(headers, "Content-Type") {
		request.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := httpClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header.Get("Content-Type"), response.Header.Values("Warning"), string(content)}
}

// must fails the test unless the answer has the status.
func (a answer) must(t *testing.T, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("got status %d, want %d:\n%s", a.status, status, a.body)
	}
	return a
}

// compositeJSON is a CompositeController with more fields in its spec.
func compositeJSON(name, fields string) string {
	return `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"` + name + `"},` +
		`"spec":{"parentResource":{"apiVersion":"example.com/v1","resource":"foos"}` + fields + `}}`
}
