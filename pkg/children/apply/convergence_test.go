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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// thing is an API server with one object of a kind, whose values it stores in its own way: quantities in canonical form, defaults
// in the items of an atomic list, no empty texts, no unknown fields; admission appends to a list and replaces an immutable field
// at the creation.
type thing struct {
	content map[string]any
	version int
	// writes are those that were no dry run.
	writes []string
	// busy is how often another client writes right after a read, and beats how often it did in all.
	busy, beats int
}

// beat has another client write a field of its own.
func (a *thing) beat() {
	a.beats++
	content := runtime.DeepCopyJSON(a.content)
	spec(content)["beats"] = int64(a.beats)
	a.put(content)
}

func (a *thing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var sent map[string]any
	if body, _ := io.ReadAll(r.Body); len(body) > 0 {
		_ = utiljson.Unmarshal(body, &sent)
	}
	dry := r.URL.Query().Get("dryRun") != ""
	respond := func(x response) {
		w.WriteHeader(x.code)
		_, _ = io.WriteString(w, x.body)
	}
	switch {
	case r.Method == http.MethodGet && a.content != nil:
		_ = json.NewEncoder(w).Encode(a.content)
		if a.busy > 0 {
			a.busy--
			a.beat()
		}
		return
	case r.Method == http.MethodGet:
		respond(failure(http.StatusNotFound, "NotFound", "a"))
		return
	case r.Method == http.MethodDelete && sent["preconditions"].(map[string]any)["resourceVersion"] != fmt.Sprint(a.version):
		respond(failure(http.StatusConflict, "Conflict", "a"))
		return
	case r.Method == http.MethodDelete:
		a.content = nil
		a.writes = append(a.writes, r.Method)
		respond(success)
		return
	case r.Method == http.MethodPost && a.content != nil && !dry:
		respond(failure(http.StatusConflict, "AlreadyExists", "a"))
		return
	case r.Method == http.MethodPut && a.content == nil:
		respond(failure(http.StatusNotFound, "NotFound", "a"))
		return
	case r.Method == http.MethodPut && sent["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(a.version):
		respond(failure(http.StatusConflict, "Conflict", "a"))
		return
	}
	stored := store(sent, r.Method == http.MethodPost)
	if r.Method == http.MethodPut && !merge.Equal(spec(stored)["priority"], spec(a.content)["priority"]) {
		respond(failure(http.StatusUnprocessableEntity, "Invalid", "a"))
		return
	}
	if dry {
		_ = json.NewEncoder(w).Encode(stored)
		return
	}
	if !merge.Equal(stored, a.content) {
		a.writes = append(a.writes, r.Method)
		a.put(stored)
	}
	_ = json.NewEncoder(w).Encode(a.content)
}

func (a *thing) put(content map[string]any) {
	a.version++
	content["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(a.version)
	content["metadata"].(map[string]any)["uid"] = "u"
	a.content = content
}

func spec(content map[string]any) map[string]any {
	s, _ := content["spec"].(map[string]any)
	return s
}

// store returns what is stored of an object.
func store(sent map[string]any, created bool) map[string]any {
	encoded, _ := json.Marshal(sent)
	var content map[string]any
	_ = utiljson.Unmarshal(encoded, &content)
	s := spec(content)
	if text, ok := s["cpu"].(string); ok {
		quantity := resource.MustParse(text)
		s["cpu"] = quantity.String()
	}
	if s["note"] == "" {
		delete(s, "note")
	}
	delete(s, "unknown")
	if _, ok := s["size"]; !ok || s["size"] == nil {
		s["size"] = int64(3)
	}
	steps, _ := s["steps"].([]any)
	for _, step := range steps {
		if step := step.(map[string]any); step["tries"] == nil {
			step["tries"] = int64(1)
		}
	}
	if created {
		if list, ok := s["tolerations"].([]any); ok {
			s["tolerations"] = append(list, "admitted")
		}
		if s["priority"] == "low" {
			s["priority"] = "medium"
		}
	}
	return content
}

// atomicSteps is the schema of the kind.
type atomicSteps struct{ at string }

func (s atomicSteps) Field(name string) merge.Schema { return atomicSteps{name} }
func (atomicSteps) Item() merge.Schema               { return atomicSteps{} }
func (atomicSteps) Default() (any, bool)             { return nil, false }
func (atomicSteps) Shared() bool                     { return false }
func (atomicSteps) Atomic() bool                     { return false }
func (s atomicSteps) ListType() (string, []string) {
	switch s.at {
	case "ports":
		return "map", []string{"port"}
	case "steps", "tolerations", "args":
		return "atomic", nil
	}
	return "", nil
}

// shapes are the values that a field may be desired with, or get from another client.
var shapes = map[string][]any{
	"cpu":         {"1000m", "1", "0.5", "500m"},
	"note":        {"", "x", "y"},
	"unknown":     {"a", "b"},
	"size":        {nil, int64(3), int64(4)},
	"image":       {"good", "better", "best"},
	"priority":    {"low", "medium", "high"},
	"args":        {[]any{"a"}, []any{"a", "b"}, []any{}},
	"tolerations": {[]any{"mine"}, []any{"mine", "other"}},
	"steps":       {[]any{map[string]any{"run": "a"}}, []any{map[string]any{"run": "a"}, map[string]any{"run": "b", "tries": int64(2)}}},
	"ports": {
		[]any{map[string]any{"port": int64(80)}},
		[]any{map[string]any{"port": int64(80), "name": "web"}, map[string]any{"port": int64(443)}},
	},
}

// run is a random history of a child.
type run struct {
	t       *testing.T
	random  *rand.Rand
	api     *thing
	applier *apply.Applier
	records plan.Records
	in      plan.Input
	now     time.Time
	desired map[string]any
	log     []string
	// recreates says that an immutable field can be changed.
	recreates bool
	// hot has another client write the object after each observation, and insists is what the plans are asked for.
	hot, insists bool
}

func (r *run) notef(format string, args ...any) { r.log = append(r.log, fmt.Sprintf(format, args...)) }

func (r *run) pick(field string) any { return shapes[field][r.random.IntN(len(shapes[field]))] }

func (r *run) field() string {
	names := slices.Sorted(maps.Keys(shapes))
	return names[r.random.IntN(len(names))]
}

// wants has the hook desire another value.
func (r *run) wants() {
	field := r.field()
	if field == "priority" && !r.recreates {
		// It is immutable, and the API server would say so.
		return
	}
	if r.random.IntN(4) == 0 {
		delete(r.desired, field)
	} else {
		r.desired[field] = r.pick(field)
	}
	r.notef("desired %s: %v", field, r.desired[field])
}

// edits has another client change a value, as the API server allows it.
func (r *run) edits() {
	if r.api.content == nil {
		return
	}
	encoded, _ := json.Marshal(r.api.content)
	var content map[string]any
	_ = utiljson.Unmarshal(encoded, &content)
	s := spec(content)
	switch field := r.field(); {
	case field == "priority":
	case r.random.IntN(3) == 0:
		delete(s, field)
		r.notef("edit: no %s", field)
	default:
		value := r.pick(field)
		if list, ok := value.([]any); ok && r.random.IntN(2) == 0 && field != "ports" && field != "steps" {
			value = append(slices.Clone(list), "theirs")
		}
		s[field] = value
		r.notef("edit: %s: %v", field, value)
	}
	if stored := store(content, false); !merge.Equal(stored, r.api.content) {
		r.api.put(stored)
	}
}

// sync syncs once, and returns the number of writes.
func (r *run) sync() int {
	r.t.Helper()
	r.now = r.now.Add(10 * time.Second)
	in := r.in
	in.Now, in.Records = r.now, r.records
	if r.api.content != nil {
		encoded, _ := json.Marshal(r.api.content)
		o, err := object.Parse(encoded, object.ParseOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		in.Observed = []*object.Object{o}
		if r.hot {
			r.api.beat()
		}
	}
	in.Insists = r.insists
	child := map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}, "spec": maps.Clone(r.desired)}
	var err error
	if in.Desired, _, err = children.Validate(children.Scope{Namespace: "ns"}, in.Rules, []map[string]any{child}); err != nil {
		r.t.Fatal(err)
	}
	before := len(r.api.writes)
	in.Trials = r.applier.Try(r.t.Context(), in)
	p, errPlan := plan.Make(in)
	outcomes, errApply := r.applier.Apply(r.t.Context(), p)
	r.records = p.Next(in.Records, outcomes, 0)
	r.notef("sync: %s%v", printed(p), errors.Join(errPlan, errApply))
	return len(r.api.writes) - before
}

// check fails the test unless the object is what the API server makes of the desired state, at the creation or by an update.
func (r *run) check() {
	r.t.Helper()
	fresh := spec(store(map[string]any{"spec": maps.Clone(r.desired)}, true))
	updated := maps.Clone(r.api.content)
	s := maps.Clone(spec(updated))
	maps.Copy(s, r.desired)
	updated["spec"] = s
	again := spec(store(updated, false))
	for field := range r.desired {
		is := spec(r.api.content)[field]
		if field == "ports" {
			// Ports of others stay.
			list, _ := is.([]any)
			is, again[field] = slices.DeleteFunc(slices.Clone(list), func(p any) bool {
				return !slices.ContainsFunc(r.desired[field].([]any), func(q any) bool {
					return p.(map[string]any)["port"] == q.(map[string]any)["port"]
				})
			}), is
			if holds(is, r.desired[field]) {
				continue
			}
		}
		if !merge.Equal(is, fresh[field]) && !merge.Equal(is, again[field]) {
			r.t.Errorf("%s is %v, want %v or %v", field, is, fresh[field], again[field])
		}
	}
}

// holds reports whether a list of ports has what is desired of each.
func holds(is, desired any) bool {
	for _, want := range desired.([]any) {
		if !slices.ContainsFunc(is.([]any), func(port any) bool {
			for name, value := range want.(map[string]any) {
				if !merge.Equal(port.(map[string]any)[name], value) {
					return false
				}
			}
			return true
		}) {
			return false
		}
	}
	return true
}

// TestDriftIsNeverTakenForTheAPIServers interleaves changes of the desired state with edits of other clients, restarts and hours in which
// records grow old. However they come, the child becomes what the API server makes of the last desired state, and then nothing is written.
func TestDriftIsNeverTakenForTheAPIServers(t *testing.T) {
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRecreate} {
		for seed := range uint64(400) {
			t.Run(fmt.Sprint(method, " ", seed), func(t *testing.T) {
				t.Parallel()
				r := newRun(t, seed, method)
				for range 12 {
					switch r.random.IntN(8) {
					case 0, 1, 2:
						r.wants()
					case 3, 4, 5:
						r.edits()
					case 6:
						r.records = nil
						r.notef("restart")
					case 7:
						r.now = r.now.Add(plan.MaxAge)
						r.notef("hours later")
						r.wants()
					}
					if r.random.IntN(2) == 0 {
						r.sync()
					}
				}
				for i := 0; r.sync() > 0; i++ {
					if i > 5 {
						t.Errorf("it is written for ever")
						break
					}
				}
				r.check()
				for range 3 {
					if r.sync() > 0 {
						t.Error("it is written again")
					}
				}
				if t.Failed() {
					t.Logf("%s", strings.Join(r.log, "\n"))
				}
			})
		}
	}
}

func newRun(t *testing.T, seed uint64, method v1alpha1.ChildUpdateMethod) *run {
	t.Helper()
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	r := &run{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), api: &thing{}, now: time.Unix(1e9, 0),
		desired:   map[string]any{"image": "good", "priority": "low"},
		recreates: method == v1alpha1.ChildUpdateRecreate,
		in: plan.Input{
			Parent: "p", ParentName: "Parent p", Owner: map[string]any{"uid": "p", "controller": true},
			Rules:   children.NewRules([]children.Rule{{Kind: kind, Resource: kind.GroupVersion().WithResource("things"), Namespaced: true, Method: method}}),
			Schemas: map[schema.GroupVersionKind]merge.Schema{kind: atomicSteps{}},
		},
	}
	r.applier = against(t, r.api, apply.Options{})
	for range 5 {
		r.wants()
	}
	return r
}

// Admission that acts on new objects alone is not undone by an update: deleting the child would bring it back as it is.
func TestARestartDeletesNoChildForWhatAdmissionDoesToNewOnes(t *testing.T) {
	r := newRun(t, 0, v1alpha1.ChildUpdateRecreate)
	r.desired = map[string]any{"tolerations": []any{"mine"}, "priority": "low", "cpu": "1000m"}
	r.sync()
	r.records = nil
	for range 3 {
		if r.sync() > 0 {
			t.Fatalf("it is written: %v", r.log)
		}
	}
	// What another client adds is not admission's.
	r.records = nil
	s := spec(r.api.content)
	s["tolerations"] = append(s["tolerations"].([]any), "theirs")
	r.api.put(r.api.content)
	deleted, created := r.sync(), r.sync()
	if deleted != 1 || created != 1 || !merge.Equal(spec(r.api.content)["tolerations"], []any{"mine", "admitted"}) {
		t.Errorf("it is %v after %v", r.api.content, r.log)
	}
}

// TestAChildThatSomebodyWritesAllTheTimeIsBroughtToItsDesiredState has another client write a child between each observation and what comes of it.
func TestAChildThatSomebodyWritesAllTheTimeIsBroughtToItsDesiredState(t *testing.T) {
	for name, tc := range map[string]struct {
		method   v1alpha1.ChildUpdateMethod
		restarts bool
		// busy is how often a read is outdated at once.
		busy int
		// drift is a value that another client sets once.
		drift string
	}{
		"Updated":                         {v1alpha1.ChildUpdateInPlace, false, 0, ""},
		"UpdatedAtTheThirdRead":           {v1alpha1.ChildUpdateInPlace, false, 2, ""},
		"UpdatedAfterARestart":            {v1alpha1.ChildUpdateInPlace, true, 0, ""},
		"UpdatedAfterARestartAtTheSecond": {v1alpha1.ChildUpdateInPlace, true, 1, ""},
		"PutBackAfterARestart":            {v1alpha1.ChildUpdateInPlace, true, 0, "better"},
		"Recreated":                       {v1alpha1.ChildUpdateRecreate, false, 2, ""},
		"RecreatedAfterARestart":          {v1alpha1.ChildUpdateRecreate, true, 0, ""},
		"RecreatedForDriftAfterARestart":  {v1alpha1.ChildUpdateRecreate, true, 0, "better"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, 0, tc.method)
			r.desired = map[string]any{"image": "good", "cpu": "1000m", "args": []any{"a"}}
			r.sync()
			if tc.restarts {
				r.records = nil
			}
			if tc.drift == "" {
				r.desired["image"] = "best"
			} else {
				spec(r.api.content)["image"] = tc.drift
			}
			delete(r.desired, "args")
			r.hot = true
			if r.sync(); len(r.api.writes) != 1 {
				t.Errorf("it is written without a look at what changed: %v", r.api.writes)
			}
			r.insists, r.api.busy = true, tc.busy
			r.sync()
			if tc.method == v1alpha1.ChildUpdateRecreate {
				r.sync()
			} else if got := spec(r.api.content)["beats"]; !merge.Equal(got, int64(r.api.beats)) {
				t.Errorf("the other client wrote %d, and its field is %v", r.api.beats, got)
			}
			if s := spec(r.api.content); s["image"] != r.desired["image"] || s["args"] != nil {
				t.Errorf("it is %v, want %v, after %s", s, r.desired, strings.Join(r.log, "\n"))
			}
		})
	}
}
