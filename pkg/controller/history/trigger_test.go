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

package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/randfill"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// parse returns an object with a text in place of metadata and the rest.
func parse(t *testing.T, metadata, rest string) *object.Object {
	t.Helper()
	o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","namespace":"n","uid":"u"%s}%s}`, metadata, rest),
		object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestChangesHaveTheirPlacesAndReasons(t *testing.T) {
	long := strings.Repeat("x", maxScan)
	for name, tc := range map[string]struct {
		metadata, rest           string
		metadataAfter, restAfter string
		reason                   v1alpha1.SyncReason
		fields                   string
		more                     bool
	}{
		"spec":             {"", `,"spec":{"a":1,"b":{"c":"x"}}`, "", `,"spec":{"a":1,"b":{"c":"y"}}`, v1alpha1.SyncSpecChanged, "spec.b.c", false},
		"another order":    {"", `,"spec":{"a":1,"b":2}`, "", `,"spec":{"b":2,"a":3}`, v1alpha1.SyncSpecChanged, "spec.a", false},
		"a field more":     {"", `,"spec":{"a":1}`, "", `,"spec":{"a":1,"b":{"c":2}}`, v1alpha1.SyncSpecChanged, "spec.b", false},
		"a field less":     {"", `,"spec":{"a":1,"b":2}`, "", `,"spec":{"b":2}`, v1alpha1.SyncSpecChanged, "spec.a", false},
		"another kind":     {"", `,"spec":{"a":1}`, "", `,"spec":{"a":[1]}`, v1alpha1.SyncSpecChanged, "spec.a", false},
		"an element":       {"", `,"spec":{"a":[{"n":1},{"n":2}]}`, "", `,"spec":{"a":[{"n":1},{"n":3}]}`, v1alpha1.SyncSpecChanged, "spec.a[1].n", false},
		"another length":   {"", `,"spec":{"a":[1,2]}`, "", `,"spec":{"a":[1]}`, v1alpha1.SyncSpecChanged, "spec.a", false},
		"no spec any more": {"", `,"spec":{"a":1}`, "", "", v1alpha1.SyncSpecChanged, "spec", false},
		"data of a Secret": {"", `,"data":{"password":"b2xk"}`, "", `,"data":{"password":"bmV3"}`, v1alpha1.SyncSpecChanged, "data.password", false},
		"escaped texts":    {"", `,"spec":{"a":"\\\"{,","b":"\\\\"}`, "", `,"spec":{"a":"\\\"{;","b":"\\\\"}`, v1alpha1.SyncSpecChanged, "spec.a", false},
		"spaces":           {"", `,"spec": { "a" : [ 1 , 2 ] , "b" : "x" }`, "", `,"spec": { "a" : [ 1 , 3 ] , "b" : "x" }`, v1alpha1.SyncSpecChanged, "spec.a[1]", false},
		"status":           {"", `,"status":{"a":1}`, "", `,"status":{"a":2}`, v1alpha1.SyncStatusChanged, "status.a", false},
		"no status before": {"", "", "", `,"status":{"a":2}`, v1alpha1.SyncStatusChanged, "status", false},
		"no status after":  {"", `,"status":{"a":2}`, "", "", v1alpha1.SyncStatusChanged, "status", false},
		"spec and status":  {"", `,"spec":{"a":1},"status":{"a":1}`, "", `,"spec":{"a":2},"status":{"a":2}`, v1alpha1.SyncSpecChanged, "spec.a status.a", false},
		"labels":           {`,"labels":{"a":"x"},"resourceVersion":"1"`, "", `,"labels":{"a":"y"},"resourceVersion":"2"`, "", v1alpha1.SyncMetadataChanged, "metadata.labels.a", false},
		"labels, status":   {`,"labels":{"a":"x"}`, `,"status":{"a":1}`, `,"labels":{"a":"y"}`, `,"status":{"a":2}`, v1alpha1.SyncMetadataChanged, "metadata.labels.a status.a", false},
		"annotations":      {"", "", `,"annotations":{"example.com/a":"x"}`, "", v1alpha1.SyncMetadataChanged, "metadata.annotations", false},
		"the version only": {`,"resourceVersion":"1"`, "", `,"resourceVersion":"2","generation":2`, "", v1alpha1.SyncMetadataChanged, "", false},
		"deletion":         {"", "", `,"deletionTimestamp":"2026-01-02T03:04:05Z"`, `,"status":{"a":1}`, v1alpha1.SyncParentDeleted, "metadata.deletionTimestamp status", false},
		"many places": {
			"", `,"spec":{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`, "", `,"spec":{"a":2,"b":2,"c":2,"d":2,"e":2,"f":2,"g":2,"h":2,"i":2}`,
			v1alpha1.SyncSpecChanged, "spec.a spec.b spec.c spec.d spec.e spec.f spec.g spec.h", true,
		},
		"many places of the status and labels": {
			`,"labels":{"a":"x"}`, `,"status":{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`,
			`,"labels":{"a":"y"}`, `,"status":{"a":2,"b":2,"c":2,"d":2,"e":2,"f":2,"g":2,"h":2,"i":2}`,
			v1alpha1.SyncMetadataChanged, "metadata.labels.a status.a status.b status.c status.d status.e status.f status.g", true,
		},
		"a large value": {"", `,"spec":{"a":1,"b":"` + long + `"}`, "", `,"spec":{"a":2,"b":"` + long + `"}`, v1alpha1.SyncSpecChanged, "spec", false},
		"a long name": {
			"", `,"spec":{"` + strings.Repeat("x", maxPath) + `":1}`, "", `,"spec":{"` + strings.Repeat("x", maxPath) + `":2}`, v1alpha1.SyncSpecChanged,
			"spec." + strings.Repeat("x", maxPath-5) + "...", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := parse(t, tc.metadata, tc.rest), parse(t, tc.metadataAfter, tc.restAfter)
			got := OfParent(cache.Event{Type: cache.Updated, Old: before, New: after}, false)
			if got.Reason != tc.reason || strings.Join(got.Fields, " ") != tc.fields || got.MoreFields != tc.more {
				t.Errorf("the trigger is %+v", got)
			}
			if want := (v1alpha1.SyncObject{Kind: "Thing"}); *got.Object != want {
				t.Errorf("the object is %+v", got.Object)
			}
		})
	}
}

// The order of members is that of who stored the object.
func TestLabelsAfterManyPlacesOfTheStatusAreSeen(t *testing.T) {
	object := func(n int, label string) []byte {
		var status strings.Builder
		for i := range 2 * maxFields {
			fmt.Fprintf(&status, `"k%02d":%d,`, i, n)
		}
		return fmt.Appendf(nil, `{"status":{%s"z":0},"metadata":{"resourceVersion":"%d","labels":{"a":%q}}}`, status.String(), n, label)
	}
	for label, want := range map[string]v1alpha1.SyncReason{"x": v1alpha1.SyncStatusChanged, "y": v1alpha1.SyncMetadataChanged} {
		if fields, more, reason := compare(object(1, "x"), object(2, label)); reason != want || !more || len(fields) != maxFields {
			t.Errorf("with the label %s it is %s at %v, more %t; want %s", label, reason, fields, more, want)
		}
	}
}

func TestCreatedAndReplacedParentsHaveNoFields(t *testing.T) {
	o := parse(t, "", `,"spec":{"a":1}`)
	other, err := object.Parse([]byte(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","namespace":"n","uid":"v"}}`), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]cache.Event{"created": {New: o}, "replaced": {Old: other, New: o}, "gone": {Old: o}} {
		if got := OfParent(e, false); got.Reason != v1alpha1.SyncParentCreated || got.Fields != nil || *got.Object != (v1alpha1.SyncObject{Kind: "Thing"}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestSetsThatShareATriggerJoinOthersToTheirOwn(t *testing.T) {
	state := func(version, rest string) *object.Object { return parse(t, `,"resourceVersion":"`+version+`"`, rest) }
	changed := func(before, after *object.Object) Trigger {
		return OfObject(v1alpha1.SyncRelatedChanged, schema.GroupResource{Resource: "secrets"}, before, after)
	}
	first, second, third := state("1", `,"data":{"a":"1","b":"1"}`), state("2", `,"data":{"a":"2","b":"1"}`), state("3", `,"data":{"a":"2","b":"2"}`)
	shared := changed(first, second)
	var one, other Set
	one.Add(shared)
	other.Add(shared)
	one.Add(changed(second, third))
	for name, test := range map[string]struct {
		of   Trigger
		want []string
		last uint64
	}{
		"joined": {one.Kept()[0], []string{"data.a", "data.b"}, Version(third)}, "other": {other.Kept()[0], []string{"data.a"}, Version(second)},
		"shared": {shared, []string{"data.a"}, Version(second)},
	} {
		if diff := cmp.Diff(test.want, test.of.Fields); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if !test.of.All(func(v uint64) bool { return v == Version(second) || v == test.last }) ||
			test.of.All(func(v uint64) bool { return v == Version(second) }) != (test.last == Version(second)) {
			t.Errorf("%s stands for other states", name)
		}
	}
}

func TestATriggerIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Trigger{}); size > 80 {
		t.Errorf("a trigger has %d bytes beside its object; after a start there are several for every parent", size)
	}
}

func TestTriggersAreCoalesced(t *testing.T) {
	child := func(version, rest string) *object.Object { return parse(t, `,"resourceVersion":"`+version+`"`, rest) }
	changed := func(before, after *object.Object) Trigger {
		return OfObject(v1alpha1.SyncChildChanged, schema.GroupResource{Resource: "configmaps"}, before, after)
	}
	var s Set
	first, second, third := child("1", `,"data":{"a":"1","b":"1"}`), child("2", `,"data":{"a":"2","b":"1"}`), child("3", `,"data":{"a":"2","b":"2"}`)
	s.Add(changed(first, second))
	s.Add(changed(second, third))
	s.Add(changed(first, second))
	for _, reason := range []v1alpha1.SyncReason{v1alpha1.SyncTimer, v1alpha1.SyncRetry, v1alpha1.SyncTimer, v1alpha1.SyncResyncPeriod, v1alpha1.SyncStarted, v1alpha1.SyncKindChanged} {
		s.Add(Of(reason))
	}
	var got []string
	for _, each := range s.Kept() {
		got = append(got, string(each.Reason)+" "+strings.Join(each.Fields, " "))
	}
	if diff := cmp.Diff([]string{"ChildChanged data.a data.b", "Timer ", "Retry ", "ResyncPeriod "}, got); diff != "" || s.More != 2 {
		t.Errorf("%d more, and (-want +got):\n%s", s.More, diff)
	}
	one, both := s.Kept()[0], map[uint64]bool{Version(second): true, Version(third): true}
	if !one.All(func(v uint64) bool { return both[v] }) || one.All(func(v uint64) bool { return v == Version(second) }) {
		t.Error("a joined trigger does not stand for both states")
	}
	if s.Kept()[1].All(func(uint64) bool { return true }) {
		t.Error("a timer stands for a state of an object")
	}
	if (*Set)(nil).Kept() != nil {
		t.Error("no set has triggers")
	}
}

func TestDeletionsStandForThemselves(t *testing.T) {
	o, deleting := parse(t, `,"resourceVersion":"1"`, ""), parse(t, `,"resourceVersion":"2","deletionTimestamp":"2026-01-02T03:04:05Z"`, "")
	later := parse(t, `,"resourceVersion":"3","deletionTimestamp":"2026-01-02T03:04:05Z"`, "")
	for name, tc := range map[string]struct {
		before, after *object.Object
		version       uint64
	}{
		"gone":              {deleting, nil, Deleted(o)},
		"begins to go":      {o, deleting, Deleted(o)},
		"changes meanwhile": {deleting, later, Version(later)},
		"changes":           {nil, o, Version(o)},
	} {
		if got := OfObject(v1alpha1.SyncChildDeleted, schema.GroupResource{}, tc.before, tc.after); !slices.Equal(got.versions, []uint64{tc.version}) {
			t.Errorf("%s: it stands for another state", name)
		}
	}
}

func FuzzDiffering(f *testing.F) {
	for _, pair := range [][2]string{
		{`{}`, `{}`},
		{`{"a":1}`, `{}`},
		{`{}`, `{"a":1}`},
		{`{"a":1,"b":2}`, `{"a":1,"b":3}`},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`},
		{`{"a":12,"b":1}`, `{"a":1,"b":1}`},
		{`{"a":{"b":[1,{"c":"}"}]},"d":null}`, `{"a":{"b":[1,{"c":"}"}]},"d":true}`},
		{`{"a": 1,"b":2}`, `{"a": 1,"b":3}`},
		{`{"a":1 ,"b":2}`, `{"a":1,"b":2}`},
		{`{"a":"x\"","b":{}}`, `{"a":"x\\","b":[]}`},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		var was, is map[string]json.RawMessage
		if json.Unmarshal([]byte(before), &was) != nil || json.Unmarshal([]byte(after), &is) != nil || was == nil || is == nil ||
			before[0] != '{' || after[0] != '{' || before[len(before)-1] != '}' || after[len(after)-1] != '}' {
			return
		}
		if all, others := parts(nil, []byte(before)), parts(nil, []byte(after)); len(all) != len(was) || len(others) != len(is) {
			return // A key is there twice, which no API server sends.
		}
		shown := map[string]bool{}
		differing([]byte(before), []byte(after), func(name string, value, later []byte) {
			if shown[name] = true; string(value) != string(was[name]) || string(later) != string(is[name]) {
				t.Errorf("of %s and %s, %q is %s, and then %s", before, after, name, value, later)
			}
		})
		for _, all := range []map[string]json.RawMessage{was, is} {
			for name := range all {
				if differs := string(was[name]) != string(is[name]); shown[name] != differs {
					t.Errorf("of %s and %s, %q differs: %t", before, after, name, differs)
				}
			}
		}
	})
}

func TestAMemberBeforeManyIsTheOnlyPlace(t *testing.T) {
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, `,"k%04d":1`, i)
	}
	with, without := parse(t, "", `,"spec":{"a":1`+many.String()+"}"), parse(t, "", `,"spec":{`+many.String()[1:]+"}")
	for _, pair := range [][2]*object.Object{{with, without}, {without, with}} {
		if fields, more := Fields(pair[0], pair[1]); strings.Join(fields, " ") != "spec.a" || more {
			t.Errorf("the places are %v, more %t", fields, more)
		}
	}
}

// placesOf is what differs between two decoded values, in so many words.
func placesOf(path string, before, after any) (list []string) {
	switch was := before.(type) {
	case map[string]any:
		is, ok := after.(map[string]any)
		if !ok {
			break
		}
		both := maps.Clone(was)
		maps.Copy(both, is)
		for _, name := range slices.Sorted(maps.Keys(both)) {
			value, there := was[name]
			later, stays := is[name]
			if below := strings.TrimPrefix(path+"."+name, "."); there && stays {
				list = append(list, placesOf(below, value, later)...)
			} else {
				list = append(list, below)
			}
		}
		return list
	case []any:
		is, ok := after.([]any)
		if !ok || len(was) != len(is) {
			break
		}
		for i := range was {
			list = append(list, placesOf(fmt.Sprintf("%s[%d]", path, i), was[i], is[i])...)
		}
		return list
	}
	if reflect.DeepEqual(before, after) {
		return nil
	}
	return []string{path}
}

func TestFieldsOfRandomObjectsAreThoseOfWhatTheyDecodeTo(t *testing.T) {
	value := func(c randfill.Continue) any {
		return []any{
			nil, "x", "y", true, 1.0,
			[]any{"x", "y"},
			[]any{"x"},
			map[string]any{"k": "x"},
			map[string]any{"k": "y", "l": 2.0},
			[]any{map[string]any{"k": "x"}},
			[]any{map[string]any{"k": "y", "l": "z"}},
		}[c.Intn(11)]
	}
	fill := randfill.NewWithSeed(1).Funcs(func(m *map[string]any, c randfill.Continue) {
		*m = map[string]any{}
		for _, name := range []string{"a", "b", "c"} {
			switch c.Intn(3) {
			case 0:
				(*m)[name] = value(c)
			case 1:
				(*m)[name] = map[string]any{"in": value(c), "side": value(c)}
			}
		}
	})
	encode := func(v any) []byte {
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	differ := 0
	for range 3000 {
		var before, after map[string]any
		fill.Fill(&before)
		fill.Fill(&after)
		want := placesOf("", before, after)
		if got, more, _ := compare(encode(before), encode(after)); !slices.Equal(got, want[:min(len(want), maxFields)]) || more != (len(want) > maxFields) {
			t.Fatalf("of %s and %s: %q, more %t; want %q", encode(before), encode(after), got, more, want)
		}
		if len(want) > 0 {
			differ++
		}
	}
	if differ < 1000 {
		t.Errorf("only %d of them differ", differ)
	}
}

// BenchmarkFields compares two states of an object of which somebody wrote the status.
func BenchmarkFields(b *testing.B) {
	parse := func(n int) *object.Object {
		managed := `{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{".":{},"f:replicas":{},"f:template":{".":{},"f:spec":{".":{},"f:containers":{}}}}},"manager":"kubectl","operation":"Update","time":"2026-01-02T03:04:05Z"}`
		o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"managedFields":[%s,{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:status":{".":{},"f:conditions":{},"f:replicas":{}}},"manager":"metacontroller","operation":"Update","subresource":"status","time":"2026-01-02T03:04:%02dZ"}],"name":"thing-1","namespace":"default","resourceVersion":"12345%02d","uid":"0a1b2c3d-0000-4000-8000-000000000001"},"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"a","image":"b","env":[{"name":"x","value":"y"}]}]}}},"status":{"conditions":[{"type":"Ready","status":"%t"}],"replicas":3}}`, managed, 10+n, 10+n, n > 0), object.ParseOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return o
	}
	before, after := parse(0), parse(1)
	b.ReportAllocs()
	for b.Loop() {
		if fields, _ := Fields(before, after); len(fields) != 1 {
			b.Fatal(fields)
		}
	}
}
