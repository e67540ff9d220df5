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

package examplehook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

const examplesFolder = "../../artifacts/examples"

// A recorded is a request to a hook of an example.
type recorded struct {
	Name string
	// Hook is sync by default.
	Hook    hook.Name
	Request json.RawMessage
}

// The examples with an inline.yaml have hooks that return what their webhooks return.
func TestInlineHooksReturnWhatWebhooksReturn(t *testing.T) {
	var requests map[string][]recorded
	if err := yaml.UnmarshalStrict(read(t, "testdata/twins.yaml"), &requests); err != nil {
		t.Fatal(err)
	}
	twins, err := filepath.Glob(filepath.Join(examplesFolder, "*", "inline.yaml"))
	if err != nil || len(twins) != len(requests) {
		t.Fatalf("there are %d inline.yaml, and requests for %d: %v", len(twins), len(requests), err)
	}
	for _, twin := range twins {
		folder := filepath.Dir(twin)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			var definitions [][]byte
			if crd, err := os.ReadFile(filepath.Join(folder, "crd.yaml")); err == nil {
				definitions = append(definitions, crd)
			}
			hooks := compile(t, read(t, twin), clusterWith(t, definitions...))
			scripts, err := filepath.Glob(filepath.Join(folder, "*.py"))
			if err != nil || len(scripts) != 1 {
				t.Fatalf("%s has the scripts %v: %v", folder, scripts, err)
			}
			url := Start(t, scripts[0])
			called := map[hook.Name]bool{}
			for _, r := range requests[filepath.Base(folder)] {
				if r.Hook == "" {
					r.Hook = hook.Sync
				}
				called[r.Hook] = true
				want, got := post(t, url+"/"+string(r.Hook), r.Request), hooks.call(t, r.Hook, r.Request)
				if !reflect.DeepEqual(value(t, got), value(t, want)) {
					t.Errorf("%s: the inline hook returns\n%s\nand the webhook\n%s", r.Name, got, want)
				}
			}
			for name := range hooks.programs {
				if !called[name] {
					t.Errorf("there is no request to the %s hook", name)
				}
			}
		})
	}
}

// call returns the response of an inline hook, which the server takes.
func (c compiled) call(t *testing.T, name hook.Name, body []byte) []byte {
	t.Helper()
	request, err := inline.ParseRequest(body)
	if err != nil {
		t.Fatal(err)
	}
	program := c.programs[name]
	if program == nil {
		t.Fatalf("there is no inline %s hook", name)
	}
	response, err := program.Call(t.Context(), request)
	if err != nil {
		t.Fatalf("%v\nrequest: %s", err, body)
	}
	switch {
	case name == hook.Customize:
		_, err = wire.DecodeCustomize(response, wire.ResponseOptions{Strict: true})
	case c.decorator:
		_, err = wire.DecodeDecorator(response, wire.ResponseOptions{Strict: true})
	default:
		_, err = wire.DecodeComposite(response, wire.ResponseOptions{Strict: true})
	}
	if err != nil {
		t.Fatalf("the response is rejected: %v\n%s", err, response)
	}
	return response
}

// post returns the response of a webhook.
func post(t *testing.T, url string, body []byte) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s responds with status %d: %s, %v", url, response.StatusCode, text, err)
	}
	return text
}

func value(t *testing.T, data []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
