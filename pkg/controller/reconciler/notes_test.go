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

package reconciler

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

func TestChangesOfAParentAreNotedByTheirPlaces(t *testing.T) {
	o := parse(t, `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a","labels":{"app":"x","gone":"y"}},"status":{"n":1,"list":[1],"same":true}}`)
	var n noting
	if err := n.change(o, parent.Changes{
		Labels: map[string]*string{"gone": nil, "example.com/new": new("z")},
		Status: map[string]any{"n": int64(2), "list": []any{int64(1), int64(2)}, "same": true, "more": map[string]any{"deep": "v"}},
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"metadata.labels[example.com/new] - \"z\"", "metadata.labels.gone \"y\" -",
		"status.list [1] [1,2]", "status.more.deep - \"v\"", "status.n 1 2",
	}
	if diff := cmp.Diff(want, texts(n.plan.Changes)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	n = noting{}
	if err := n.change(o, parent.Changes{Labels: map[string]*string{"app": new("x")}}); err != nil || len(n.plan.Changes) > 0 {
		t.Errorf("what is so already: %v, error %v", n.plan.Changes, err)
	}
}

// A hook may return the annotations that it is shown, and others in their place.
func TestChangesOfASecretShowNoCopyOfItsValues(t *testing.T) {
	const kubectl, own = "kubectl.kubernetes.io/last-applied-configuration", "metacontroller.k8s.io/last-applied-configuration"
	const annotations = `"metadata":{"name":"a","annotations":{"` + kubectl + `":"hunter2","note":"old"}}}`
	changes := parent.Changes{Annotations: map[string]*string{kubectl: new("hunter3"), own: new("hunter4"), "note": new("new")}}
	for name, test := range map[string]struct {
		kind string
		want []string
	}{
		"a Secret": {`{"apiVersion":"v1","kind":"Secret",`, []string{
			`metadata.annotations[` + kubectl + `] "(hidden)" "(hidden)"`, `metadata.annotations[` + own + `] - "(hidden)"`, `metadata.annotations.note "old" "new"`,
		}},
		"another kind of that name": {`{"apiVersion":"example.com/v1","kind":"Secret",`, []string{
			`metadata.annotations[` + kubectl + `] "hunter2" "hunter3"`, `metadata.annotations[` + own + `] - "hunter4"`, `metadata.annotations.note "old" "new"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var n noting
			if err := n.change(parse(t, test.kind+annotations), changes); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, texts(n.plan.Changes)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// texts returns changes as lines.
func texts(changes []v1alpha1.FieldChange) (lines []string) {
	for _, c := range changes {
		observed, desired := "-", "-"
		if c.Observed != nil {
			observed = *c.Observed
		}
		if c.Desired != nil {
			desired = *c.Desired
		}
		lines = append(lines, c.Path+" "+observed+" "+desired)
	}
	return lines
}

func TestAFinalizerIsOnTheParentThatIsShown(t *testing.T) {
	s := &Sync{Parent: parse(t, `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a","uid":"u"}}`)}
	n := noting{s: s}
	err := n.setFinalizers(t.Context(), []string{"f"})
	if o := s.Parent; err != nil || len(o.Finalizers()) != 1 || o.UID() != "u" || len(n.plan.Changes) != 1 || *n.plan.Changes[0].Desired != `["f"]` {
		t.Errorf("the parent is %v, the changes are %v, error %v", s.Parent, n.plan.Changes, err)
	}
}

func TestResponsesAreShownWithoutValuesOfSecrets(t *testing.T) {
	var n noting
	for _, response := range []string{
		`{"children":[{"apiVersion":"v1","kind":"Secret","stringData":{"k":"hunter2"}},{"kind":"ConfigMap","apiVersion":"v1","data":{"k":"kept"}}]}`,
		`{"attachments":[{"apiVersion":"v1","kind":"Secret","data":{"k":"aHVudGVyMg=="}}],"labels":{"k":"kept"}}`,
	} {
		redacted, err := ResponseWithoutSecrets([]byte(response))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.request("sync", "", []byte(`{}`), redacted); err != nil {
			t.Fatal(err)
		}
		shown := string(n.requests[len(n.requests)-1].Response.Raw)
		if strings.Contains(shown, "hunter2") || strings.Contains(shown, "aHVudGVyMg") || !strings.Contains(shown, "kept") {
			t.Errorf("%s is shown as %s", response, shown)
		}
	}
	const other = `{"status": {"n": 1},  "children":[null, 1]}`
	if shown, err := ResponseWithoutSecrets([]byte(other)); err != nil || string(shown) != other {
		t.Errorf("a response without Secrets is %s, error %v", shown, err)
	}
	if _, err := ResponseWithoutSecrets([]byte(`[]`)); err == nil {
		t.Error("no object is taken")
	}
	if err := n.request("customize", "", []byte(`{}`), nil); err != nil || len(n.requests) != 3 || n.requests[2].Response != nil {
		t.Errorf("no response: %v", n.requests)
	}
}

// Each request during a rolling update repeats what the others have.
func TestRequestsAreShownUpToASize(t *testing.T) {
	for name, test := range map[string]struct {
		body, response []byte
		// kept are how many such requests are shown of one parent.
		kept int
	}{
		"as large as all may be":              {make([]byte, 32<<20), nil, 1},
		"larger than all may be":              {make([]byte, 32<<20+1), nil, 0},
		"a third each":                        {make([]byte, 10<<20), nil, 3},
		"of which the response is a part":     {make([]byte, 10<<20), make([]byte, 10<<20), 1},
		"of which the response is the excess": {make([]byte, 1), make([]byte, 32<<20), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var n noting
			for range test.kept {
				if err := n.request("sync", "", test.body, test.response); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.request("sync", "", test.body, test.response); !errors.Is(err, inspection.ErrTooLarge) || len(n.requests) != test.kept {
				t.Errorf("one more: %v, and %d are kept, want %d", err, len(n.requests), test.kept)
			}
		})
	}
}

func TestResponsesAreShownWithTheFieldsAloneThatAreRead(t *testing.T) {
	for name, tc := range map[string]struct {
		read       func([]byte, wire.ResponseOptions) ([]byte, error)
		body, want string
	}{
		"composite": {
			responseShown(wire.DecodeComposite),
			`{"status":{"n":1},"children":[{"kind":"Pod","spec":{"n":1.50}}],"finalized":true,"resyncAfterSeconds":1.5,"delete":true,"internal":{"a":"b"}}`,
			`{"children":[{"kind":"Pod","spec":{"n":1.50}}],"finalized":true,"resyncAfterSeconds":1.5,"status":{"n":1}}`,
		},
		"decorator": {
			responseShown(wire.DecodeDecorator),
			`{"labels":{"a":null},"annotations":{"b":"c"},"attachments":[],"delete":false,"children":[],"internal":1}`,
			`{"annotations":{"b":"c"},"attachments":[],"delete":false,"labels":{"a":null}}`,
		},
		"absent fields": {responseShown(wire.DecodeComposite), `{"STATUS":{"secret":1}}`, `{}`},
		"Secrets": {
			responseShown(wire.DecodeComposite), `{"children":[{"apiVersion":"v1","kind":"Secret","stringData":{"k":"hunter2"}}]}`,
			`{"children":[{"apiVersion":"v1","kind":"Secret","stringData":{"k":"(hidden)"}}]}`,
		},
		"customize": {
			CustomizeResponse, `{"relatedResources":[{"apiVersion":"v1","resource":"pods","internal":1}],"internal":1}`,
			`{"relatedResources":[{"apiVersion":"v1","resource":"pods"}]}`,
		},
		"customize without rules": {CustomizeResponse, `{"internal":1}`, `{}`},
		"customize with null":     {CustomizeResponse, `{"relatedResources":null}`, `{"relatedResources":null}`},
		"customize with no rules": {CustomizeResponse, `{"relatedResources":[]}`, `{"relatedResources":[]}`},
		"what selects all objects": {
			CustomizeResponse,
			`{"relatedResources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchLabels":{}}},{"apiVersion":"v1","resource":"pods","names":[],"namespace":""}]}`,
			`{"relatedResources":[{"apiVersion":"v1","labelSelector":{"matchLabels":{}},"resource":"pods"},{"apiVersion":"v1","names":[],"namespace":"","resource":"pods"}]}`,
		},
		"fields that are not read inside of a selector": {
			CustomizeResponse,
			`{"relatedResources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"internal":1,"matchExpressions":[{"key":"a","operator":"In","values":["b"],"internal":1}]},"namespaceSelector":null}]}`,
			`{"relatedResources":[{"apiVersion":"v1","labelSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"namespaceSelector":null,"resource":"pods"}]}`,
		},
		"all that a rule may have, but for names": {
			CustomizeResponse,
			`{"relatedResources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchLabels":{"internal":"x"}},"namespaceSelector":{"matchLabels":{"a":"b"}}}]}`,
			`{"relatedResources":[{"apiVersion":"v1","labelSelector":{"matchLabels":{"internal":"x"}},"namespaceSelector":{"matchLabels":{"a":"b"}},"resource":"pods"}]}`,
		},
		"a child without kind": {responseShown(wire.DecodeComposite), `{"children":[{"internal":1}]}`, ""},
		"another document":     {responseShown(wire.DecodeComposite), `{"status":"up"}`, ""},
		"no object":            {CustomizeResponse, `[]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			shown, err := tc.read([]byte(tc.body), wire.ResponseOptions{})
			if string(shown) != tc.want || (err == nil) != (tc.want != "") || err != nil && !hook.IsRejected(err) {
				t.Errorf("it is shown as %s, error %v; want %s", shown, err, tc.want)
			}
		})
	}
}

func TestWhatIsHiddenInAResponseIsThatOfTheObservedChild(t *testing.T) {
	const kubectl = "kubectl.kubernetes.io/last-applied-configuration"
	observed := parse(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"ns","annotations":{"`+kubectl+`":"copy","note":"(hidden)"}},
		"data":{"k":"aHVudGVyMg=="}}`)
	other := parse(t, `{"apiVersion":"example.com/v1","kind":"Secret","metadata":{"name":"t","namespace":"ns"},"data":{"k":"aHVudGVyMg=="}}`)
	child := func(kind, name, fields string) string { // Its fields are in the order of their names.
		return `{"apiVersion":"v1",` + fields + `,"kind":"` + kind + `","metadata":{"name":"` + name + `"}}`
	}
	for name, tc := range map[string]struct{ returned, want string }{
		"data": {child("Secret", "s", `"data":{"k":"KGhpZGRlbik="}`), child("Secret", "s", `"data":{"k":"aHVudGVyMg=="}`)},
		"stringData": {
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"k":"(hidden)"}}`,
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"k":"hunter2"}}`,
		},
		"another key":               {child("Secret", "s", `"data":{"l":"KGhpZGRlbik="}`), child("Secret", "s", `"data":{"l":"KGhpZGRlbik="}`)},
		"another value":             {child("Secret", "s", `"data":{"k":"YmV0dGVy"}`), child("Secret", "s", `"data":{"k":"YmV0dGVy"}`)},
		"a Secret that is new":      {child("Secret", "new", `"data":{"k":"KGhpZGRlbik="}`), child("Secret", "new", `"data":{"k":"KGhpZGRlbik="}`)},
		"one of another group":      {child("Secret", "t", `"data":{"k":"KGhpZGRlbik="}`), child("Secret", "t", `"data":{"k":"KGhpZGRlbik="}`)},
		"a ConfigMap":               {child("ConfigMap", "s", `"data":{"k":"(hidden)"}`), child("ConfigMap", "s", `"data":{"k":"(hidden)"}`)},
		"another namespace":         {`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","namespace":"b"},"data":{"k":"KGhpZGRlbik="}}`, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","namespace":"b"},"data":{"k":"KGhpZGRlbik="}}`},
		"a copy in an annotation":   {`{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"` + kubectl + `":"(hidden)","note":"(hidden)"},"name":"s","namespace":"ns"}}`, `{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"` + kubectl + `":"copy","note":"(hidden)"},"name":"s","namespace":"ns"}}`},
		"fields that are no fields": {`{"kind":"Secret","apiVersion":"v1","metadata":1,"data":1}`, `{"kind":"Secret","apiVersion":"v1","metadata":1,"data":1}`},
		"no child":                  {`1`, `1`},
	} {
		t.Run(name, func(t *testing.T) {
			decode := revealed(wire.DecodeComposite, "ns", []*object.Object{other, observed})
			response, err := decode([]byte(`{"children":[`+tc.returned+`]}`), wire.ResponseOptions{Strict: true})
			if err != nil || string(response.RawChildren) != "["+tc.want+"]" {
				t.Errorf("the children are %s, error %v, want %s", response.RawChildren, err, tc.want)
			}
		})
	}
}

func TestSecretsAreShownWithoutValues(t *testing.T) {
	const secret = `{"apiVersion":"v1","kind":"Secret","type":"Opaque","metadata":{"name":"s","namespace":"ns","labels":{"app":"kept"},
		"annotations":{"note":"kept","metacontroller.k8s.io/last-applied-configuration":"{\"data\":\"hunter2\"}",
		"kubectl.kubernetes.io/last-applied-configuration":"hunter2"}},"data":{"k":"aHVudGVyMg=="},"stringData":{"j":"hunter2"}}`
	shown := withoutSecrets(parse(t, secret))
	text := string(shown.JSON())
	for _, value := range []string{"hunter2", "aHVudGVyMg=="} {
		if strings.Contains(text, value) {
			t.Errorf("%s is in %s", value, text)
		}
	}
	for _, part := range []string{`"k":"KGhpZGRlbik="`, `"j":"(hidden)"`, `"app":"kept"`, `"note":"kept"`, `"type":"Opaque"`} {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in %s", part, text)
		}
	}
	if shown.Name() != "s" || shown.Namespace() != "ns" {
		t.Errorf("it is %s/%s", shown.Namespace(), shown.Name())
	}
	for _, other := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"s"},"data":{"k":"v"}}`,
		`{"apiVersion":"example.com/v1","kind":"Secret","metadata":{"name":"s"},"data":{"k":"v"}}`,
	} {
		if o := parse(t, other); !bytes.Equal(withoutSecrets(o).JSON(), o.JSON()) {
			t.Errorf("%s is shown as %s", o.JSON(), withoutSecrets(o).JSON())
		}
	}
}
