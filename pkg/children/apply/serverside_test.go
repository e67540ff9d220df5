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
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// mergedChild is a child to which the merge strategy has applied another value than the hook wants now.
const mergedChild = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"ns","uid":"u","resourceVersion":"5",
"annotations":{"metacontroller.k8s.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"data\":{\"a\":\"old\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\",\"namespace\":\"ns\"}}"},
"ownerReferences":[{"apiVersion":"v1","kind":"P","name":"p","uid":"p","controller":true}],
"managedFields":[{"manager":"metacontroller","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",
"fieldsV1":{"f:data":{"f:a":{}}}}]},"data":{"a":"old"}}`

// The merge strategy has applied another value than the hook wants now. That is no conflict with another client.
func TestOurOwnFieldsAreMovedWithoutForce(t *testing.T) {
	for method, want := range map[v1alpha1.ChildUpdateMethod][]string{
		v1alpha1.ChildUpdateInPlace: {
			"PATCH apply-patch+yaml dry", "GET ", "PATCH json-patch+json", "PATCH apply-patch+yaml",
		},
		// What differs is looked at when the fields are ours.
		v1alpha1.ChildUpdateRecreate: {"PATCH apply-patch+yaml dry", "GET ", "PATCH json-patch+json"},
	} {
		t.Run(string(method), func(t *testing.T) {
			var requests []string
			moved := false
			applier := against(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				request := r.Method + " " + strings.TrimPrefix(r.Header.Get("Content-Type"), "application/")
				if r.URL.Query().Get("dryRun") != "" {
					request += " dry"
				}
				requests = append(requests, request)
				w.Header().Set("Content-Type", "application/json")
				moved = moved || strings.Contains(request, "json-patch")
				if strings.Contains(request, "apply") && !moved {
					w.WriteHeader(http.StatusConflict)
					_, _ = io.WriteString(w, strings.Replace(fieldConflict, "kubectl", "metacontroller", 1))
					return
				}
				_, _ = io.WriteString(w, strings.Replace(mergedChild, `"resourceVersion":"5"`, `"resourceVersion":"6"`, 1))
			}), apply.Options{})
			in := taken(t, method)
			in.Observed = []*object.Object{parse(t, mergedChild)}
			outcomes, err := carryOut(t.Context(), t, applier, in)
			if err != nil || len(outcomes) != 1 || !outcomes[0].Done || outcomes[0].Action != plan.Update {
				t.Errorf("outcomes %+v, error %v", outcomes, err)
			}
			if !slices.Equal(requests, want) {
				t.Errorf("requests %q", requests)
			}
		})
	}
}

// The fields of a child are moved, and the application after it fails: the child changed all the same.
func TestAMoveThatNoApplicationFollowsIsInTheOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		refused response
		stale   bool
	}{
		"Forbidden": {failure(http.StatusForbidden, "Forbidden", "c"), false},
		"Failed":    {failure(http.StatusInternalServerError, "InternalError", "c"), false},
		"Conflict":  {failure(http.StatusConflict, "Conflict", "c"), true},
	} {
		t.Run(name, func(t *testing.T) {
			applier := against(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if strings.Contains(r.Header.Get("Content-Type"), "apply") {
					refused := c.refused
					if r.URL.Query().Get("dryRun") != "" {
						refused = response{http.StatusConflict, strings.Replace(fieldConflict, "kubectl", "metacontroller", 1)}
					}
					w.WriteHeader(refused.code)
					_, _ = io.WriteString(w, refused.body)
					return
				}
				_, _ = io.WriteString(w, strings.Replace(mergedChild, `"resourceVersion":"5"`, `"resourceVersion":"6"`, 1))
			}), apply.Options{})
			in := taken(t, v1alpha1.ChildUpdateInPlace)
			in.Observed = []*object.Object{parse(t, mergedChild)}
			outcomes, err := carryOut(t.Context(), t, applier, in)
			if len(outcomes) != 1 || (err == nil) != c.stale {
				t.Fatalf("outcomes %+v, error %v", outcomes, err)
			}
			o := outcomes[0]
			if o.Done || o.Written != nil || o.Stale != c.stale || o.Moved == nil || o.Moved.ResourceVersion() != "6" {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// An application has the owner reference: it would take back a child that was orphaned meanwhile.
func TestChildrenAreAppliedToTheVersionThatWasObserved(t *testing.T) {
	for current, stale := range map[string]bool{"5": false, "6": true} {
		t.Run(current, func(t *testing.T) {
			var sent []string
			applier := against(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Query().Get("dryRun") == "" {
					sent = append(sent, string(body))
				}
				if strings.Contains(string(body), `"resourceVersion"`) && !strings.Contains(string(body), `"resourceVersion":"`+current+`"`) {
					refused := failure(http.StatusConflict, "Conflict", "c")
					w.WriteHeader(refused.code)
					_, _ = io.WriteString(w, refused.body)
					return
				}
				_, _ = io.WriteString(w, strings.NewReplacer("theirs", "ours", `"resourceVersion":"5"`, `"resourceVersion":"7"`).Replace(takenChild))
			}), apply.Options{})
			in := taken(t, v1alpha1.ChildUpdateInPlace)
			outcomes, err := carryOut(t.Context(), t, applier, in)
			if err != nil || len(outcomes) != 1 || outcomes[0].Stale != stale || outcomes[0].Done == stale {
				t.Errorf("outcomes %+v, error %v", outcomes, err)
			}
			if len(sent) != 1 || !strings.Contains(sent[0], `"resourceVersion":"5"`) {
				t.Errorf("sent %q", sent)
			}
		})
	}
}

// The API server refuses a value that is not there, or is another one. That must not hide what another client changed.
func TestWhatServerSideApplyRefusesDoesNotHideDrift(t *testing.T) {
	for _, observed := range []string{`,"priority":"high"`, ``} {
		t.Run(observed, func(t *testing.T) {
			var writes []string
			applier := against(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				if strings.Contains(string(body), `"priority":"low"`) {
					refused := failure(http.StatusUnprocessableEntity, "Invalid", "a")
					w.WriteHeader(refused.code)
					_, _ = io.WriteString(w, refused.body)
					return
				}
				if r.URL.Query().Get("dryRun") == "" {
					writes = append(writes, string(body))
				}
				_, _ = io.WriteString(w, appliedPod("good", observed, "6"))
			}), apply.Options{})
			in := taken(t, v1alpha1.ChildUpdateInPlace)
			in.Rules = children.NewRules([]children.Rule{{
				Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
				Namespaced: true, Method: v1alpha1.ChildUpdateInPlace, ServerSide: true, Force: true,
			}})
			o, err := object.Parse([]byte(appliedPod("evil", observed, "5")), object.ParseOptions{Managers: []string{"metacontroller"}})
			if err != nil {
				t.Fatal(err)
			}
			in.Observed = []*object.Object{o}
			if in.Desired, _, err = children.Validate(children.Scope{Namespace: "ns"}, in.Rules, []map[string]any{{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"image": "good", "priority": "low"},
			}}); err != nil {
				t.Fatal(err)
			}
			in.Now = time.Now()
			outcomes, err := carryOut(t.Context(), t, applier, in)
			if err != nil || len(outcomes) != 1 || pathsOf(outcomes[0].Changed) != "spec.image" {
				t.Errorf("outcomes %+v, error %v", outcomes, err)
			}
			if len(writes) != 1 || !strings.Contains(writes[0], `"spec":{"image":"good"`+observed+`}`) {
				t.Errorf("writes %q", writes)
			}
		})
	}
}

// appliedPod returns a Pod of whose spec our manager owns the image and the priority.
func appliedPod(image, more, version string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":%q,`+
		`"ownerReferences":[{"apiVersion":"v1","kind":"P","name":"p","uid":"p","controller":true}],"managedFields":[{"manager":"metacontroller/x",`+
		`"operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"p\"}":{}}},`+
		`"f:spec":{"f:image":{},"f:priority":{}}}}]},"spec":{"image":%q%s}}`, version, image, more)
}

// pathsOf returns the places of changes.
func pathsOf(changes []plan.Change) string {
	list := make([]string, len(changes))
	for i := range changes {
		list[i] = changes[i].Path
	}
	return strings.Join(list, " ")
}

// printed names each step of a plan.
func printed(p plan.Plan) string {
	var text strings.Builder
	for _, step := range p.Steps {
		fmt.Fprintf(&text, "%s %s (%s) %s\n", step.Action, step.Key, step.Reason, pathsOf(step.Changed))
	}
	return text.String()
}

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
