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
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

// data returns so many keys with a value.
func data(n int, value string) map[string]any {
	all := make(map[string]any, n)
	for i := range n {
		all[fmt.Sprintf("some.prefix.of.a.key-%06d", i)] = value
	}
	return all
}

// wide is a ConfigMap a with so many keys.
func wide(tb testing.TB, n int, value string) string {
	tb.Helper()
	return jsonOf(tb, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": data(n, value)})
}

func jsonOf(tb testing.TB, content any) string {
	tb.Helper()
	text, err := json.Marshal(content)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// wideChild is a child with so many keys, of which one value is known to be applied by merging, or all fields to be owned by our manager.
func wideChild(tb testing.TB, n int, value, applied string, serverSide bool) *object.Object {
	tb.Helper()
	metadata := map[string]any{
		"name": "a", "namespace": "ns", "uid": "child", "resourceVersion": "7",
		"ownerReferences": []any{map[string]any{
			"apiVersion": "example.com/v1", "kind": "Parent", "name": "p", "uid": "parent", "controller": true, "blockOwnerDeletion": true,
		}},
	}
	if serverSide {
		fields := make(map[string]any, n)
		for key := range data(n, "") {
			fields["f:"+key] = map[string]any{}
		}
		metadata["managedFields"] = []any{map[string]any{
			"manager": ourManager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
			"fieldsV1": map[string]any{"f:data": fields, "f:metadata": map[string]any{
				"f:ownerReferences": map[string]any{`k:{"uid":"parent"}`: map[string]any{}},
			}},
		}}
	} else {
		metadata["annotations"] = map[string]any{merge.Annotation: jsonOf(tb, map[string]any{
			"apiVersion": "v1", "data": data(n, applied), "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "ns"},
		})}
	}
	return managed(tb, jsonOf(tb, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data(n, value)}))
}

// differing prepares a plan for one child with so many keys, all of which differ.
type differing struct {
	why        string
	serverSide bool
	// returns says that the API server is known to have returned other values than it was sent before.
	returns bool
	method  v1alpha1.ChildUpdateMethod
	// trial says what comes of a dry run, given the child as it is; nil: nothing changes.
	trial func(d plan.Doubt, now *object.Object) plan.Trial
	want  plan.Action
}

var allDiffering = []differing{
	{"merged, and changed by somebody else", false, false, v1alpha1.ChildUpdateInPlace, nil, plan.Update},
	{"applied, and changed by somebody else", true, false, v1alpha1.ChildUpdateInPlace, nil, plan.Update},
	{"merged, and changed by the hook where the API server returns other values", false, true, v1alpha1.ChildUpdateInPlace, nil, plan.Update},
	{"applied, and changed by the hook where the API server returns other values", true, true, v1alpha1.ChildUpdateInPlace, nil, plan.Update},
	{
		"no update changes it, and a new child would be the same", true, false, v1alpha1.ChildUpdateRecreate,
		func(d plan.Doubt, now *object.Object) plan.Trial {
			if d.Fresh {
				return plan.Trial{Result: now}
			}
			return plan.Trial{Refused: d.Paths}
		},
		plan.Leave,
	},
}

func (d differing) prepare(tb testing.TB, n int) func() {
	tb.Helper()
	s := newScene(d.method)
	if d.serverSide {
		s.serverSide(true)
	}
	if d.returns {
		s.want(tb, wide(tb, n, "1000m"))
		s.wrote(s.step(tb), wideChild(tb, n, "1", "1000m", d.serverSide))
		s.Epochs = map[schema.GroupKind]int64{{Kind: "ConfigMap"}: 2} // It may return something else by now.
	}
	s.want(tb, wide(tb, n, "2000m"))
	now := wideChild(tb, n, "1", "2000m", d.serverSide)
	if d.returns {
		now = wideChild(tb, n, "1", "1000m", d.serverSide)
	}
	s.Observed = []*object.Object{now}
	wanted := wideChild(tb, n, "2000m", "2000m", d.serverSide)
	s.trial = func(doubt plan.Doubt) plan.Trial {
		if d.trial != nil {
			return d.trial(doubt, now)
		}
		if _, err := doubt.Body(doubt.Paths); err != nil {
			tb.Fatal(err)
		}
		return plan.Trial{Result: wanted}
	}
	return func() {
		s.gather(tb)
		p, err := plan.Make(s.Input)
		if err != nil || p.Steps[0].Action != d.want {
			tb.Fatal(err, p.Steps[0].Action, p.Steps[0].Reason, len(p.Steps[0].Changed))
		}
		if p.Steps[0].Action == plan.Update {
			p.Next(s.Records, []plan.Outcome{{Step: p.Steps[0], Written: now, Done: true}}, 1)
		}
	}
}

func TestAPlanCostsTheDifferencesOfAChildAndNotTheirSquare(t *testing.T) {
	for _, row := range allDiffering {
		size := 1000 // What costs little in proportion shows late.
		if row.serverSide {
			size = 400
		}
		t.Run(row.why, func(t *testing.T) { slope.Check(t, size, slope.Linear, row.prepare) })
	}
}

func BenchmarkPlanOfDifferences(b *testing.B) {
	for _, row := range allDiffering {
		b.Run(row.why, func(b *testing.B) { slope.Benchmark(b, row.prepare) })
	}
}

// settled prepares a plan for so many children that are as desired.
func settled(tb testing.TB, n int) func() {
	tb.Helper()
	s := newScene(v1alpha1.ChildUpdateInPlace)
	var wants, are []string
	for i := range n {
		name := fmt.Sprintf("child-%05d", i)
		wants = append(wants, child(name, "1"))
		are = append(are, annotated(tb, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns",%s},"data":{"k":"1"}}`,
			name, ownerReferences), fmt.Sprintf(`{"apiVersion":"v1","data":{"k":"1"},"kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns"}}`, name)))
	}
	s.want(tb, wants...)
	s.see(tb, are...)
	s.gather(tb)
	return func() {
		s.gather(tb)
		p, err := plan.Make(s.Input)
		if err != nil || p.Writes() > 0 {
			tb.Fatal(err, p.Writes())
		}
		s.last = p
		s.record()
	}
}

func TestAPlanCostsTheChildrenAndNotTheirSquare(t *testing.T) {
	slope.Check(t, 500, slope.Linear, settled)
}

func BenchmarkPlanOfChildren(b *testing.B) { slope.Benchmark(b, settled) }
