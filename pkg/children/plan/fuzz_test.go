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

package plan_test

import (
	"encoding/json"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// FuzzPlan has a hook return anything for a child that may be anything, and a server that stores what it is sent. One write
// is enough, for this process and for one that starts later.
func FuzzPlan(f *testing.F) {
	for _, seed := range [][3]string{
		{configMap, "", ""},
		{configMap, placed, applied},
		{configMap, placed, "{"},
		{`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"a":1,"b":null},"data":{"c":[]}}`, placed, ""},
		{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[{"uid":{}},null,1]}}`, placed, `{"metadata":1}`},
		{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":"x","finalizers":{}},"status":[]}`, "", ""},
		{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":null,"labels":null,"generation":"x"}}`, placed, `{"status":1}`},
		{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"l":[{"name":"a"},{"name":"a"}]}`, placed, `{"l":[{"name":"a"}]}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]), seed[2], true)
		f.Add([]byte(seed[0]), []byte(seed[1]), seed[2], false)
	}
	f.Fuzz(func(t *testing.T, desired, observed []byte, record string, recreate bool) {
		method := v1alpha1.ChildUpdateInPlace
		if recreate {
			method = v1alpha1.ChildUpdateRecreate
		}
		s := newScene(method)
		if !s.fuzz(t, desired, observed, record) {
			return
		}
		for writes := 0; ; writes++ {
			p, err := s.plan(t)
			if err != nil {
				return
			}
			if p.Writes() == 0 {
				break
			}
			if writes > 2 { // A child that is made anew is deleted first.
				t.Fatalf("write %d: %s because of %v", writes, p.Steps[0].Action, p.Steps[0].Changed)
			}
			if !s.store(t, p.Steps[0]) {
				return
			}
		}
		s.restart()
		// A Secret may hold values that no API server would take; what is recorded of them is a text.
		if p, err := s.plan(t); err == nil && p.Writes() > 0 {
			t.Errorf("after a restart %s because of %v", p.Steps[0].Action, p.Steps[0].Changed)
		}
	})
}

// fuzz sets what is desired and observed, and reports whether an API server and Validate would let that through.
func (s *scene) fuzz(t *testing.T, desired, observed []byte, record string) bool {
	t.Helper()
	var child map[string]any
	if utiljson.Unmarshal(desired, &child) != nil {
		return false
	}
	var err error
	s.Desired, _, err = children.Validate(children.Scope{Namespace: "ns"}, s.Rules, []map[string]any{child})
	if err != nil {
		return false
	}
	var existing map[string]any
	if utiljson.Unmarshal(observed, &existing) != nil || existing == nil {
		return true
	}
	d := s.Desired[0]
	existing["apiVersion"], existing["kind"] = d.APIVersion, d.Kind
	existing["metadata"] = map[string]any{
		"name": d.Name, "namespace": d.Namespace, "uid": "child", "annotations": map[string]any{merge.Annotation: record},
	}
	encoded, err := utiljson.Marshal(existing)
	if err != nil {
		t.Fatal(err)
	}
	s.see(t, string(encoded))
	return true
}

// store does what a step says, and reports whether an API server would let it through.
func (s *scene) store(t *testing.T, step plan.Step) bool {
	t.Helper()
	if step.Action == plan.Recreate {
		s.record(plan.Outcome{Step: step, Done: true})
		s.Observed = nil
		return true
	}
	if _, err := object.Parse(step.Body, object.ParseOptions{}); err != nil {
		return false
	}
	written := s.parse(t, string(step.Body))
	s.wrote(step, written)
	s.Observed = []*object.Object{written}
	return true
}

// FuzzHolds compares the quick look at an object with the merge that it stands for.
func FuzzHolds(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":{"b":[1,"x",null],"c":true},"d":"e"}`, `{"a":{"b":[1,"x",null]},"f":null}`},
		{`{"l":[{"name":"a","v":1},{"name":"a","v":2}]}`, `{"l":[{"name":"a","v":1},{"name":"a","v":2}]}`},
		{`{"l":[{"name":"a"},{"name":"b"}],"\u0061":"\u0062\n"}`, `{"l":[{"name":"b"}],"a":"b\n"}`},
		{`{"n":-0,"m":1e3,"e":{},"z":null}`, `{"n":0,"m":1000,"e":{},"z":null}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, observed, desired []byte) {
		o, err := object.Parse(observed, object.ParseOptions{})
		if err != nil {
			return
		}
		content, err := o.Decode()
		if err != nil {
			return
		}
		var want map[string]any
		if err := utiljson.Unmarshal(desired, &want); err != nil || want == nil {
			return
		}
		// API servers encode maps, so no field is there twice.
		encoded, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if o, err = object.Parse(encoded, object.ParseOptions{}); err != nil || !o.Holds(want) {
			return
		}
		var changed []string
		_, err = merge.Objects(content, want, want, nil, func(d merge.Difference) bool {
			changed = append(changed, d.Path)
			return false
		})
		if err != nil || len(changed) > 0 {
			t.Errorf("%s holds %s, but merging it gives %v, error %v", encoded, desired, changed, err)
		}
	})
}
