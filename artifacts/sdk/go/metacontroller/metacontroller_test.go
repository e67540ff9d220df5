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

package metacontroller_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/artifacts/sdk/go/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

func sync(request *metacontroller.CompositeRequest) (*metacontroller.CompositeResponse, error) {
	if request.Parent == nil {
		return nil, errors.New("there is no parent")
	}
	if request.Parent["kind"].(string) == "Forgotten" { // As authors ask who expect it.
		return nil, nil //nolint:nilnil // What authors may do.
	}
	return &metacontroller.CompositeResponse{Status: map[string]any{"kind": request.Parent["kind"]}}, nil
}

func hooks() map[string]http.Handler {
	return map[string]http.Handler{"/sync": metacontroller.Hook(sync)}
}

func TestHook(t *testing.T) {
	for name, tc := range map[string]struct {
		method, body string
		status       int
		want         string
	}{
		"a request":               {http.MethodPost, `{"parent": {"kind": "Website"}}`, http.StatusOK, `{"status":{"kind":"Website"}}`},
		"a readiness probe":       {http.MethodGet, "", http.StatusOK, `{"ready": true}`},
		"an error of the hook":    {http.MethodPost, `{}`, http.StatusInternalServerError, "there is no parent\n"},
		"a panic of the hook":     {http.MethodPost, `{"parent": {}}`, http.StatusInternalServerError, "panic: interface conversion: interface {} is nil, not string\n"},
		"no response":             {http.MethodPost, `{"parent": {"kind": "Forgotten"}}`, http.StatusInternalServerError, "the hook returned nil and no error: it must return a response, be it an empty one\n"},
		"what is no JSON":         {http.MethodPost, `{`, http.StatusBadRequest, "the request is not JSON of its type: unexpected EOF\n"},
		"a field of another type": {http.MethodPost, `{"parent": 1}`, http.StatusBadRequest, "the request is not JSON of its type: json: cannot unmarshal number into Go struct field CompositeRequest.parent of type metacontroller.Object\n"},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			hooks()["/sync"].ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), tc.method, "/sync", strings.NewReader(tc.body)))
			if recorder.Code != tc.status || recorder.Body.String() != tc.want {
				t.Errorf("got status %d and %q, want %d and %q", recorder.Code, recorder.Body, tc.status, tc.want)
			}
		})
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Setenv("PORT", "0")
	t.Setenv("HOST", "127.0.0.1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := metacontroller.Serve(ctx, hooks()); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestServeTakesAnEmptyPortForNone(t *testing.T) {
	t.Setenv("PORT", "")
	t.Setenv("HOST", "192.0.2.1") // No machine has this address: the error tells the port.
	if err := metacontroller.Serve(t.Context(), hooks()); err == nil || !strings.Contains(err.Error(), "192.0.2.1:8080") {
		t.Errorf("got %v", err)
	}
}

func TestChildrenAreFoundWhateverTheirKeys(t *testing.T) {
	for what, tc := range map[string]struct {
		namespace, key, name string
		found                bool
	}{
		"version v2":                                     {"shop", "shop/web", "web", true},
		"version v2, with the namespace":                 {"shop", "shop/web", "shop/web", true},
		"version v1":                                     {"shop", "web", "web", true},
		"version v1, with the namespace":                 {"shop", "web", "shop/web", true},
		"a parent without a namespace":                   {"", "shop/web", "shop/web", true},
		"a parent without a namespace, and no namespace": {"", "shop/web", "web", false},
		"a child without a namespace":                    {"", "web", "web", true},
		"another namespace":                              {"shop", "shop/web", "other/web", false},
	} {
		t.Run(what, func(t *testing.T) {
			parent := metacontroller.Object{"metadata": map[string]any{"name": "p", "namespace": tc.namespace}}
			observed := metacontroller.ObjectMap{"Deployment.apps/v1": {tc.key: {"kind": "Deployment"}}, "Pod.v1": {}}
			for _, request := range []metacontroller.Observation{
				&metacontroller.CompositeRequest{Parent: parent, Children: observed}, &metacontroller.DecoratorRequest{Object: parent, Attachments: observed},
			} {
				if object, err := metacontroller.Child(request, "Deployment.apps/v1", tc.name); err != nil || (object != nil) != tc.found {
					t.Errorf("got %v, error %v, want one: %v", object, err, tc.found)
				}
				if objects, err := metacontroller.Children(request, "Deployment.apps/v1"); err != nil || len(objects) != 1 {
					t.Errorf("got %v, error %v", objects, err)
				}
				const want = "has no Deployment.v1, only Deployment.apps/v1, Pod.v1"
				if _, err := metacontroller.Child(request, "Deployment.v1", tc.name); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}

func TestDifferences(t *testing.T) {
	folder := t.TempDir()
	if _, err := metacontroller.Differences(t.Context(), folder, hooks()); err == nil || !strings.Contains(err.Error(), "holds no recorded request") {
		t.Errorf("a folder without requests: %v", err)
	}
	record := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	record("sync-web.request.json", `{"parent": {"kind": "Website"}}`)
	record("sync-web.response.json", `{"status": {"kind": "Website"}}`)
	if texts, err := metacontroller.Differences(t.Context(), folder, hooks()); err != nil || len(texts) != 0 {
		t.Errorf("an equal response: %v, %v", texts, err)
	}
	record("sync-web.response.json", `{"status": {"kind": "Shop"}}`)
	record("sync.request.json", `{}`)
	record("sync.response.json", `{}`)
	record("finalize.request.json", `{}`)
	texts, err := metacontroller.Differences(t.Context(), folder, hooks())
	if err != nil || len(texts) != 3 {
		t.Fatalf("got %v, %v, want three texts", texts, err)
	}
	for i, want := range []string{"finalize.request.json: there is no hook /finalize", `"kind": "Shop"`, "status 500: there is no parent"} {
		if !strings.Contains(texts[i], want) {
			t.Errorf("got\n%s\nwant in it %q", texts[i], want)
		}
	}
}

// JSON has one value for 1, 1.0 and 1e0, and Go's float64 one for integers that are not equal.
func TestDifferencesComparesNumbersAsTheyAre(t *testing.T) {
	for what, tc := range map[string]struct {
		recorded, returned string
		equal              bool
	}{
		"an integer":                        {`3`, `3`, true},
		"an integer written as another":     {`3`, `3.0`, true},
		"integers that float64 makes equal": {`9007199254740993`, `9007199254740992`, false},
		"a fraction":                        {`1.50`, `15e-1`, true},
		"fractions":                         {`1.5`, `1.6`, false},
		"more than an integer holds":        {`1e300`, `1e300`, true},
	} {
		t.Run(what, func(t *testing.T) {
			folder := t.TempDir()
			for name, text := range map[string]string{"sync.request.json": `{}`, "sync.response.json": `{"status":{"n":[` + tc.recorded + `]}}`} {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"status":{"n":[` + tc.returned + `]}}`))
			})
			texts, err := metacontroller.Differences(t.Context(), folder, map[string]http.Handler{"/sync": handler})
			if err != nil || (len(texts) == 0) != tc.equal {
				t.Errorf("got %v, error %v, want none: %v", texts, err, tc.equal)
			}
		})
	}
}

// The server hides values of Secrets in what it records, and the hook returns them.
func TestDifferencesComparesSecretsWithHiddenValues(t *testing.T) {
	secret := func(fields string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},` + fields + `}`
	}
	for what, tc := range map[string]struct {
		field, recorded, returned string
		equal                     bool
	}{
		"data":               {"children", secret(`"data":{"k":"KGhpZGRlbik="}`), secret(`"data":{"k":"bmV3"}`), true},
		"stringData":         {"children", secret(`"stringData":{"k":"(hidden)"}`), secret(`"stringData":{"k":"new"}`), true},
		"an attachment":      {"attachments", secret(`"data":{"k":"KGhpZGRlbik="}`), secret(`"data":{"k":"bmV3"}`), true},
		"what is not hidden": {"children", secret(`"data":{"k":"YQ=="}`), secret(`"data":{"k":"bmV3"}`), false},
		"a key more":         {"children", secret(`"data":{"k":"KGhpZGRlbik="}`), secret(`"data":{"k":"bmV3","l":"bmV3"}`), false},
		"a key less":         {"children", secret(`"data":{"k":"KGhpZGRlbik=","l":"KGhpZGRlbik="}`), secret(`"data":{"k":"bmV3"}`), false},
		"another type":       {"children", secret(`"data":{"k":"KGhpZGRlbik="},"type":"Opaque"`), secret(`"data":{"k":"bmV3"}`), false},
		"another kind": {
			"children", `{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"(hidden)"}}`, `{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"new"}}`, false,
		},
		"a copy in an annotation": {
			"children", `{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"copy":"(hidden)"}}}`,
			`{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"copy":"new"}}}`, true,
		},
	} {
		t.Run(what, func(t *testing.T) {
			folder := t.TempDir()
			for name, text := range map[string]string{"sync.request.json": `{}`, "sync.response.json": `{"` + tc.field + `":[` + tc.recorded + `]}`} {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"` + tc.field + `":[` + tc.returned + `]}`))
			})
			texts, err := metacontroller.Differences(t.Context(), folder, map[string]http.Handler{"/sync": handler})
			if err != nil || (len(texts) == 0) != tc.equal {
				t.Errorf("got %v, error %v, want none: %v", texts, err, tc.equal)
			}
		})
	}
}

// The types have the same JSON as those of pkg/hook, from which the schema is made.
func TestTypesAreThoseOfTheProtocol(t *testing.T) {
	removed := (*string)(nil)
	for name, pair := range map[string][2]any{
		"an empty response of a CompositeController": {hook.CompositeResponse{Children: []*hook.Object{}}, metacontroller.CompositeResponse{Children: []metacontroller.Object{}}},
		"an empty status of a DecoratorController": {
			hook.DecoratorResponse{Status: map[string]any{}, Labels: map[string]*string{"a": removed}, Attachments: []*hook.Object{}},
			metacontroller.DecoratorResponse{Status: map[string]any{}, Labels: map[string]*string{"a": removed}, Attachments: []metacontroller.Object{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var decoded [2]any
			for i, value := range pair {
				encoded, err := json.Marshal(value)
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(encoded, &decoded[i]); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(decoded[0], decoded[1]); diff != "" {
				t.Errorf("-pkg/hook +here:\n%s", diff)
			}
		})
	}
}
