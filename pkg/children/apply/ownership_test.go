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

package apply_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// takenChild is a child of which kubectl owns the data.
const takenChild = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"ns","uid":"u","resourceVersion":"5",
"ownerReferences":[{"apiVersion":"v1","kind":"P","name":"p","uid":"p","controller":true}],
"managedFields":[{"manager":"metacontroller/x","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1",
"fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"p\"}":{}}}}}]},"data":{"a":"theirs"}}`

const fieldConflict = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"details":{"name":"c","causes":[
{"reason":"FieldManagerConflict","message":"conflict with \"kubectl\"","field":".data.a"}]}}`

// A conflict between field managers lasts; one between versions ends with the next event. It must not be taken for the latter.
func TestFieldsOfOthersAreAnErrorWithoutForce(t *testing.T) {
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRecreate} {
		t.Run(string(method), func(t *testing.T) {
			var requests []string
			applier := against(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests = append(requests, r.Method+" force="+r.URL.Query().Get("force"))
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusConflict)
				_, _ = io.WriteString(w, fieldConflict)
			}), apply.Options{})
			outcomes, err := carryOut(t.Context(), t, applier, taken(t, method))
			conflict, ok := errors.AsType[*apply.OwnershipError](err)
			if !ok || !slices.Equal(conflict.Fields, []string{`.data.a (conflict with "kubectl")`}) {
				t.Errorf("error %v", err)
			}
			if len(outcomes) != 0 {
				t.Errorf("outcomes %+v", outcomes)
			}
			if !slices.Equal(requests, []string{"PATCH force=false"}) {
				t.Errorf("requests %v", requests)
			}
		})
	}
}

// taken is a parent that wants another value in a field of somebody else.
func taken(t *testing.T, method v1alpha1.ChildUpdateMethod) plan.Input {
	t.Helper()
	rules := children.NewRules([]children.Rule{{
		Kind:       schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Resource:   schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Namespaced: true, Method: method, ServerSide: true,
	}})
	desired, _, err := children.Validate(children.Scope{Namespace: "ns"}, rules, []map[string]any{{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"a": "ours"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return plan.Input{
		Parent: "p", Owner: map[string]any{"apiVersion": "v1", "kind": "P", "name": "p", "uid": "p", "controller": true}, Rules: rules,
		Observed: []*object.Object{parse(t, takenChild)}, Desired: desired, Now: time.Now(), Manager: "metacontroller/x",
	}
}

// parse returns an object as a cache has it.
func parse(t *testing.T, text string) *object.Object {
	t.Helper()
	o, err := object.Parse([]byte(text), object.ParseOptions{Managers: []string{"metacontroller"}})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// What is there already must never be taken over by its name: no object has version 1.
func TestNewChildrenAreAppliedWithAVersionThatNoObjectHas(t *testing.T) {
	var bodies []string
	applier := against(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, takenChild)
	}), apply.Options{})
	in := taken(t, v1alpha1.ChildUpdateInPlace)
	in.Observed = nil
	in.Desired[0].Content["large"] = int64(9007199254740993)
	outcomes, err := carryOut(t.Context(), t, applier, in)
	if err != nil || len(outcomes) != 1 || !outcomes[0].Done {
		t.Fatalf("outcomes %+v, error %v", outcomes, err)
	}
	want := []string{`{"apiVersion":"v1","data":{"a":"ours"},"kind":"ConfigMap","large":9007199254740993,"metadata":{"name":"c","namespace":"ns",` +
		`"ownerReferences":[{"apiVersion":"v1","controller":true,"kind":"P","name":"p","uid":"p"}],"resourceVersion":"1"}}`}
	if !slices.Equal(bodies, want) {
		t.Errorf("sent %v\nwant %v", bodies, want)
	}
}
