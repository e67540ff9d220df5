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

package parent

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
)

func TestAnErrorSaysWhatOfTheParentWasWrittenAndWhatToDo(t *testing.T) {
	o := parse(t, `{"kind":"Thing","metadata":{"name":"t","namespace":"default","uid":"u","resourceVersion":"1","finalizers":["ours"]}}`)
	large := map[string]any{"log": strings.Repeat("z", 2_000_000)}
	for name, tc := range map[string]struct {
		changes Changes
		code    int
		reason  metav1.StatusReason
		message string
		want    string
	}{
		"a status that the store does not take": {
			Changes{Status: large},
			500, metav1.StatusReasonInternalError, "etcdserver: request is too large",
			"writing the status of Thing default/t, 2.0 MB: etcdserver: request is too large; return a smaller status",
		},
		"a status that the API server does not read": {
			Changes{Status: large},
			413, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728",
			"writing the status of Thing default/t, 2.0 MB: limit is 3145728; return a smaller status",
		},
		"annotations that are too large": {
			Changes{Annotations: map[string]*string{"a": new("b")}},
			422, metav1.StatusReasonInvalid, "may not be more than 262144 bytes",
			"writing the annotations of Thing default/t: may not be more than 262144 bytes; return smaller annotations",
		},
		"a label that no object can have": {
			Changes{Labels: map[string]*string{"a": new(" ")}},
			422, metav1.StatusReasonInvalid, "no",
			"writing the labels of Thing default/t: no; return valid labels",
		},
		"labels with a status": {
			Changes{Labels: map[string]*string{"a": new("b")}, Status: map[string]any{"n": 1}},
			422, metav1.StatusReasonInvalid, "no",
			"writing the labels and status of Thing default/t: no; return a status that the kind allows",
		},
		"the status of a built-in kind": {
			Changes{Status: map[string]any{"n": 1}, BuiltIn: true},
			422, metav1.StatusReasonInvalid, "no",
			"writing the status of Thing default/t: no; this status is that of a controller of Kubernetes: have the hook return none",
		},
		"finalizers": {
			Changes{DropFinalizer: "ours"}, 403, metav1.StatusReasonForbidden, "no", "writing the finalizers of Thing default/t: no",
		},
		"a conflict": {
			Changes{Status: map[string]any{"n": 1}}, 409, metav1.StatusReasonConflict, "changed", "writing the status of Thing default/t: changed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.code)
				_ = json.NewEncoder(w).Encode(metav1.Status{
					TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(tc.code), Reason: tc.reason, Message: tc.message,
				})
			}))
			defer server.Close()
			api, err := client.New(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			target := client.Target{Resource: schema.GroupVersionResource{Version: "v1", Resource: "things"}, Name: "t"}
			_, err = tc.changes.Write(t.Context(), api, target, o)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if apierrors.ReasonForError(err) != tc.reason {
				t.Errorf("the reason %s is lost", tc.reason)
			}
		})
	}
}

func TestUnknownFieldsAreThoseOfTheStatus(t *testing.T) {
	const before = `"" is invalid: patch: Invalid value: "{\"data\":\"strict decoding error: unknown field \\\"status.mine\\\"\"}": `
	for message, want := range map[string][]string{
		before + `strict decoding error: unknown field "status.phase", unknown field "status.conditions[0].n"`: {"status.phase", "status.conditions[0].n"},
		before + `strict decoding error: unknown field "status"`:                                               {"status"},
		before + `strict decoding error: unknown field "spec.a", unknown field "status.b"`:                     nil,
		`admission webhook "w" denied the request: unknown field "status.phase"`:                               nil,
	} {
		err := &apierrors.StatusError{ErrStatus: metav1.Status{Message: message}}
		if got := UnknownFields(err); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", message, got, want)
		}
	}
	if got := UnknownFields(errors.New(before)); got != nil {
		t.Errorf("of an error that is not the API server's: %q", got)
	}
}
