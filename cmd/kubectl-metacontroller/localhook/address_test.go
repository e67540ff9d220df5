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

package localhook

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHooksArePointedAtAnAddress(t *testing.T) {
	for what, tc := range map[string]struct{ webhook, want, local string }{
		"a Service":           {`{"service":{"name":"web"},"path":"sync","timeout":"3s"}`, `{"timeout":"3s","url":"http://localhost:1/sync"}`, ""},
		"a URL in a cluster":  {`{"url":"https://web.shop:8443/sync?a=b"}`, `{"url":"http://localhost:1/sync?a=b"}`, ""},
		"on this machine":     {`{"url":"http://localhost:8080/sync"}`, `{"url":"http://localhost:1/sync"}`, "http://localhost:8080"},
		"of another loopback": {`{"url":"http://127.0.0.1:8080/sync"}`, `{"url":"http://localhost:1/sync"}`, "http://127.0.0.1:8080"},
		// The server says that the scheme is missing.
		"no URL": {`{"url":"localhost:8080/sync"}`, `{"url":"localhost:8080/sync"}`, ""},
	} {
		t.Run(what, func(t *testing.T) {
			controller := decoded(t, `{"spec":{"hooks":{"sync":{"webhook":`+tc.webhook+`},"finalize":{}}}}`)
			if got := AddressOf(controller); got != tc.local {
				t.Errorf("the address is %q, want %q", got, tc.local)
			}
			if _, err := PointAt(controller, "http://localhost:1"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decoded(t, `{"spec":{"hooks":{"sync":{"webhook":`+tc.want+`},"finalize":{}}}}`), controller); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if _, err := PointAt(map[string]any{"spec": map[string]any{"hooks": true}}, "http://localhost:1"); err == nil {
		t.Error("hooks that are none are no error")
	}
}

func decoded(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}
