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

package merge_test

import (
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
)

// fields is a schema for tests: what is known of each field, of a list's elements, and of the list itself.
type fields struct {
	fields   map[string]*fields
	item     *fields
	kind     string
	keys     []string
	standard any
	shared   bool
}

func (f *fields) Field(name string) merge.Schema { return schemaOf(f.fields[name]) }

func (f *fields) Item() merge.Schema { return schemaOf(f.item) }

func (f *fields) ListType() (kind string, keys []string) { return f.kind, f.keys }

func (f *fields) Default() (any, bool) { return f.standard, f.standard != nil }

func (f *fields) Shared() bool { return f.shared }

func (f *fields) Atomic() bool { return false }

func schemaOf(f *fields) merge.Schema {
	if f == nil {
		return nil
	}
	return f
}

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	var content map[string]any
	if err := utiljson.Unmarshal([]byte(text), &content); err != nil {
		t.Fatalf("decoding %s: %v", text, err)
	}
	return content
}

func encode(t testing.TB, content map[string]any) string {
	t.Helper()
	encoded, err := utiljson.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

// result is the outcome of a merge: the object, and the paths at which it differs from the observed one.
type result struct {
	Object  map[string]any
	Changed []string
}

// objects merges. Keep may be nil: every difference counts.
func objects(observed, last, desired map[string]any, schema merge.Schema, keep merge.Keep) (result, error) {
	var r result
	var err error
	r.Object, err = merge.Objects(observed, last, desired, schema, func(d merge.Difference) bool {
		if keep != nil && keep(d) {
			return true
		}
		r.Changed = append(r.Changed, d.Path)
		return false
	})
	return r, err
}

func list(kind string, keys ...string) merge.Schema {
	return schemaOf(&fields{fields: map[string]*fields{"l": {
		kind: kind, keys: keys, item: &fields{fields: map[string]*fields{"protocol": {standard: "TCP"}}},
	}}})
}

// shared is the schema of a map m, whose values are structs with a map m.
func shared() merge.Schema {
	return schemaOf(&fields{fields: map[string]*fields{"m": {
		shared: true, fields: map[string]*fields{"a": {fields: map[string]*fields{"m": {shared: true}}}, "b": {shared: true}},
	}}})
}

func TestMerge(t *testing.T) {
	for _, test := range []struct {
		name                          string
		schema                        merge.Schema
		observed, last, desired, want string
		changed                       string
	}{
		{
			name: "desired fields are set, others stay", observed: `{"a":1,"b":2}`, desired: `{"a":3}`,
			want: `{"a":3,"b":2}`, changed: "a",
		},
		{
			name: "fields applied last and no longer desired are removed", observed: `{"a":1,"b":2,"c":3}`, last: `{"a":1,"b":2}`,
			desired: `{"a":1}`, want: `{"a":1,"c":3}`, changed: "b",
		},
		{
			name: "a field of others in an object applied last stays", observed: `{"o":{"a":1,"x":9}}`, last: `{"o":{"a":1}}`,
			desired: `{"o":{}}`, want: `{"o":{"x":9}}`, changed: "o.a",
		},
		{
			name: "an object no longer desired goes whole", observed: `{"o":{"a":1,"x":9}}`, last: `{"o":{"a":1}}`,
			desired: `{}`, want: `{}`, changed: "o",
		},
		{
			name: "a field that is gone already", observed: `{}`, last: `{"a":1}`, desired: `{}`, want: `{}`,
		},
		{
			name: "one is one", observed: `{"a":1}`, desired: `{"a":1.0}`, want: `{"a":1}`,
		},
		{
			name: "a scalar becomes an object", observed: `{"a":1}`, desired: `{"a":{"b":1}}`, want: `{"a":{"b":1}}`, changed: "a",
		},
		{
			name: "null for an object removes what was applied in it", observed: `{"o":{"a":1,"x":9}}`, last: `{"o":{"a":1}}`,
			desired: `{"o":null}`, want: `{"o":{"x":9}}`, changed: "o.a",
		},
		{
			name: "null for a scalar", observed: `{"a":1}`, desired: `{"a":null}`, want: `{"a":null}`, changed: "a",
		},
		{
			name: "null for what is not there says nothing", observed: `{}`, desired: `{"a":null}`, want: `{}`,
		},
		{
			name: "null for a list with keys removes what was applied", observed: `{"l":[{"name":"a"},{"name":"x"}]}`,
			last: `{"l":[{"name":"a"}]}`, desired: `{"l":null}`, want: `{"l":[{"name":"x"}]}`, changed: "l[a]",
		},
		{
			name: "null for an atomic list", observed: `{"l":[1,2]}`, last: `{"l":[1,2]}`, desired: `{"l":null}`,
			want: `{"l":null}`, changed: "l",
		},
		{
			name: "a list without keys is replaced", observed: `{"l":[1,2]}`, desired: `{"l":[2]}`, want: `{"l":[2]}`, changed: "l",
		},
		{
			name: "guessing: elements are merged by name", observed: `{"l":[{"name":"a","x":9},{"name":"b"}]}`, last: `{"l":[{"name":"b"}]}`,
			desired: `{"l":[{"name":"c"},{"name":"a","y":1}]}`, want: `{"l":[{"name":"a","x":9,"y":1},{"name":"c"}]}`,
			changed: "l[a].y l[b] l[c]",
		},
		{
			name:     "guessing: containerPort goes before name",
			observed: `{"l":[{"containerPort":80,"name":"a"}]}`, desired: `{"l":[{"containerPort":80,"name":"b"}]}`,
			want: `{"l":[{"containerPort":80,"name":"b"}]}`, changed: "l[80].name",
		},
		{
			name: "guessing: an element without the key makes the list atomic", observed: `{"l":[{"name":"a"}]}`,
			desired: `{"l":[{"name":"a"},{"key":"b"}]}`, want: `{"l":[{"name":"a"},{"key":"b"}]}`, changed: "l",
		},
		{
			name:     "guessing: elements of one key are told apart by their order",
			observed: `{"l":[{"port":53,"protocol":"TCP","nodePort":1},{"port":53,"protocol":"UDP","nodePort":2}]}`,
			desired:  `{"l":[{"port":53,"protocol":"TCP"},{"port":53,"protocol":"UDP"}]}`,
			want:     `{"l":[{"nodePort":1,"port":53,"protocol":"TCP"},{"nodePort":2,"port":53,"protocol":"UDP"}]}`,
		},
		{
			name: "by schema: two keys, one with a default", schema: list("map", "port", "protocol"),
			observed: `{"l":[{"port":53,"protocol":"TCP","nodePort":1},{"port":53,"protocol":"UDP","nodePort":2}]}`,
			last:     `{"l":[{"port":53},{"port":53,"protocol":"UDP"}]}`, desired: `{"l":[{"port":53}]}`,
			want: `{"l":[{"nodePort":1,"port":53,"protocol":"TCP"}]}`, changed: "l[53,UDP]",
		},
		{
			name: "by schema: a set", schema: list("set"), observed: `{"l":["a","x"]}`, last: `{"l":["a"]}`, desired: `{"l":["b"]}`,
			want: `{"l":["x","b"]}`, changed: "l[a] l[b]",
		},
		{
			name: "by schema: a set in which elements are twice", schema: list("set"), observed: `{"l":["a","a","x"]}`, last: `{"l":["a"]}`, desired: `{"l":["b","b"]}`,
			want: `{"l":["x","b"]}`, changed: "l[a] l[a] l[b]",
		},
		{
			name: "by schema: atomic, in spite of names", schema: list("atomic"), observed: `{"l":[{"name":"a","x":9}]}`,
			desired: `{"l":[{"name":"a"}]}`, want: `{"l":[{"name":"a"}]}`, changed: "l",
		},
		{
			name: "by schema: a map whose elements are no objects is atomic", schema: list("map", "name"), observed: `{"l":["a"]}`,
			desired: `{"l":["b"]}`, want: `{"l":["b"]}`, changed: "l",
		},
		{
			name: "owners are merged by UID where no schema is known", observed: `{"metadata":{"ownerReferences":[{"name":"p","uid":"1"}]}}`,
			desired: `{"metadata":{"ownerReferences":[{"name":"p","uid":"2"}]}}`,
			want:    `{"metadata":{"ownerReferences":[{"name":"p","uid":"1"},{"name":"p","uid":"2"}]}}`, changed: "metadata.ownerReferences[2]",
		},
		{
			name: "finalizers of others stay where no schema is known", observed: `{"metadata":{"finalizers":["x","a"]}}`,
			last: `{"metadata":{"finalizers":["a"]}}`, desired: `{"metadata":{"finalizers":["b"]}}`,
			want: `{"metadata":{"finalizers":["x","b"]}}`, changed: "metadata.finalizers[a] metadata.finalizers[b]",
		},
		{
			name:     "annotations and labels of others stay when none are desired",
			observed: `{"metadata":{"annotations":{"a":"1","x":"9"},"labels":{"a":"1","x":"9"}}}`,
			last:     `{"metadata":{"annotations":{"a":"1"},"labels":{"a":"1"}}}`, desired: `{"metadata":{}}`,
			want: `{"metadata":{"annotations":{"x":"9"},"labels":{"x":"9"}}}`, changed: "metadata.annotations.a metadata.labels.a",
		},
		{
			name:     "finalizers and owners of others stay when none are desired",
			observed: `{"metadata":{"finalizers":["a","x"],"ownerReferences":[{"name":"p","uid":"1"},{"name":"p","uid":"2"}]}}`,
			last:     `{"metadata":{"finalizers":["a"],"ownerReferences":[{"name":"p","uid":"2"}]}}`, desired: `{"metadata":{}}`,
			want:    `{"metadata":{"finalizers":["x"],"ownerReferences":[{"name":"p","uid":"1"}]}}`,
			changed: "metadata.finalizers[a] metadata.ownerReferences[2]",
		},
		{
			name: "metadata of others stays whatever the schema says of it", schema: shared(),
			observed: `{"metadata":{"labels":{"a":"1","x":"9"}}}`, last: `{"metadata":{"labels":{"a":"1"}}}`, desired: `{"metadata":{}}`,
			want: `{"metadata":{"labels":{"x":"9"}}}`, changed: "metadata.labels.a",
		},
		{
			name: "labels that were desired as null are those of others", observed: `{"metadata":{"labels":{"x":"9"}}}`,
			last: `{"metadata":{"labels":null}}`, desired: `{"metadata":{}}`, want: `{"metadata":{"labels":{"x":"9"}}}`,
		},
		{
			name: "annotations go whole when nobody else has any", observed: `{"metadata":{"annotations":{"a":"1"}}}`,
			last: `{"metadata":{"annotations":{"a":"1","b":"2"}}}`, desired: `{"metadata":{}}`, want: `{"metadata":{}}`,
			changed: "metadata.annotations",
		},
		{
			name: "by schema: entries of others stay in a map that is no longer desired", schema: shared(),
			observed: `{"m":{"a":{"p":1,"q":8},"x":9}}`, last: `{"m":{"a":{"p":1}}}`, desired: `{}`,
			want: `{"m":{"x":9}}`, changed: "m.a",
		},
		{
			name: "by schema: entries of others stay in a map within a map", schema: shared(),
			observed: `{"m":{"b":{"p":1,"x":9}}}`, last: `{"m":{"b":{"p":1}}}`, desired: `{}`,
			want: `{"m":{"b":{"x":9}}}`, changed: "m.b.p",
		},
		{
			name: "by schema: a map that was applied as something else goes whole", schema: shared(),
			observed: `{"m":{"x":9}}`, last: `{"m":"a"}`, desired: `{}`, want: `{}`, changed: "m",
		},
		{
			name: "by schema: elements of others stay in a list that is no longer desired", schema: list("map", "name"),
			observed: `{"l":[{"name":"a","v":1},{"name":"x"}]}`, last: `{"l":[{"name":"a"}]}`, desired: `{}`,
			want: `{"l":[{"name":"x"}]}`, changed: "l[a]",
		},
		{
			name: "by schema: values of others stay in a set that is no longer desired", schema: list("set"),
			observed: `{"l":["a","x"]}`, last: `{"l":["a"]}`, desired: `{}`, want: `{"l":["x"]}`, changed: "l[a]",
		},
		{
			name: "by schema: an atomic list that is no longer desired goes whole", schema: list("atomic"),
			observed: `{"l":["a","x"]}`, last: `{"l":["a"]}`, desired: `{}`, want: `{}`, changed: "l",
		},
		{
			name: "guessing: a list that is no longer desired goes whole", observed: `{"l":[{"name":"a"},{"name":"x"}]}`,
			last: `{"l":[{"name":"a"}]}`, desired: `{}`, want: `{}`, changed: "l",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			observed, last, desired := decode(t, test.observed), decode(t, test.last), decode(t, test.desired)
			result, err := objects(observed, last, desired, test.schema, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := encode(t, result.Object); got != test.want {
				t.Errorf("merged to %s, want %s", got, test.want)
			}
			if got := strings.Join(result.Changed, " "); got != test.changed {
				t.Errorf("changed %q, want %q", got, test.changed)
			}
			if encode(t, observed) != encode(t, decode(t, test.observed)) || encode(t, desired) != encode(t, decode(t, test.desired)) {
				t.Error("an input was changed")
			}
			again, err := objects(result.Object, desired, desired, test.schema, nil)
			if err != nil || len(again.Changed) > 0 {
				t.Errorf("merging again changes %v, error %v", again.Changed, err)
			}
		})
	}
}

// Another version of a kind may have a field of another type, and the annotation is still in that.
func TestWhatWasAppliedAsAnotherTypeCountsAsNotApplied(t *testing.T) {
	for _, test := range []struct{ name, observed, last, desired, want string }{
		{"an object that was a boolean", `{"a":{"theirs":1}}`, `{"a":true}`, `{"a":{"b":2}}`, `{"a":{"b":2,"theirs":1}}`},
		{"a list that was a text", `{"a":[{"name":"x"}]}`, `{"a":"x"}`, `{"a":[{"name":"y"}]}`, `{"a":[{"name":"x"},{"name":"y"}]}`},
		{"a text that was an object", `{"a":"x"}`, `{"a":{"b":2}}`, `{"a":"y"}`, `{"a":"y"}`},
		{"what is not wanted any more", `{"a":{"b":2},"c":1}`, `{"a":true}`, `{"c":1}`, `{"c":1}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := objects(decode(t, test.observed), decode(t, test.last), decode(t, test.desired), nil, nil)
			if err != nil || !merge.Equal(got.Object, decode(t, test.want)) {
				t.Errorf("got %v, error %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestTypesThatDoNotFitAreRefused(t *testing.T) {
	for _, test := range []struct{ name, observed, last, desired, want string }{
		{
			"an object and a string", `{"a":{"b":{}}}`, ``, `{"a":{"b":"c"}}`,
			"can't merge desired changes: desired[a.b]: expecting an object, got a string",
		},
		{
			"a list and an object", `{"a":[]}`, ``, `{"a":{}}`,
			"can't merge desired changes: desired[a]: expecting a list, got an object",
		},
		{
			"within an element of a list", `{"l":[{"name":"a","o":{}}]}`, ``, `{"l":[{"name":"a","o":1}]}`,
			"can't merge desired changes: desired[l[a].o]: expecting an object, got a number",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := objects(decode(t, test.observed), decode(t, test.last), decode(t, test.desired), nil, nil)
			if err == nil || err.Error() != test.want {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
}

func TestUntouchedPartsAreShared(t *testing.T) {
	observed := decode(t, `{"same":{"deep":{"a":1}},"other":{"b":1}}`)
	result, err := objects(observed, nil, decode(t, `{"same":{"deep":{"a":1}},"other":{"b":2}}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	observed["same"].(map[string]any)["mark"] = true
	if result.Object["same"].(map[string]any)["mark"] != true {
		t.Error("a part that does not change was copied")
	}
	if encode(t, observed["other"].(map[string]any)) != `{"b":1}` {
		t.Error("the observed object was changed")
	}
}

func TestKeptDifferencesStayAsObserved(t *testing.T) {
	observed := decode(t, `{"a":1,"b":2,"l":[{"name":"x","v":1},{"name":"gone"}],"s":["old"]}`)
	last := decode(t, `{"b":2,"l":[{"name":"gone"}],"s":["old"]}`)
	desired := decode(t, `{"a":2,"c":3,"l":[{"name":"x","v":2},{"name":"new"}],"s":["new"]}`)
	var seen []string
	result, err := objects(observed, last, desired, nil, func(d merge.Difference) bool {
		seen = append(seen, d.Path)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(seen, " "), "b a c l[x].v l[gone] l[new] s"; got != want {
		t.Errorf("asked about %q, want %q", got, want)
	}
	if len(result.Changed) > 0 || encode(t, result.Object) != encode(t, observed) {
		t.Errorf("changed %v to %s", result.Changed, encode(t, result.Object))
	}
}

func FuzzMerge(f *testing.F) {
	for _, seed := range [][3]string{
		{`{"a":1,"b":2}`, `{"b":2}`, `{"a":3}`},
		{`{"l":[{"name":"a"},{"name":"a"},{"name":"a#2"}]}`, `{"l":[{"name":"a"}]}`, `{"l":[{"name":"a"},{"name":"a#2"},{"name":"a"}]}`},
		{`{"l":[1,"1",null,{}]}`, `null`, `{"l":[{"port":1.0},{"port":1}]}`},
		{`{"metadata":{"finalizers":["a","a"],"ownerReferences":[{"uid":1}]}}`, `{"metadata":{"finalizers":null}}`, `{"metadata":{"finalizers":["a"]}}`},
		{`{"a":{"b":{"c":[]}}}`, `{"a":{"b":{"c":{}}}}`, `{"a":null}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]), []byte(seed[2]))
	}
	f.Fuzz(func(t *testing.T, observedText, lastText, desiredText []byte) {
		var observed, last, desired map[string]any
		if utiljson.Unmarshal(observedText, &observed) != nil || utiljson.Unmarshal(lastText, &last) != nil ||
			utiljson.Unmarshal(desiredText, &desired) != nil || observed == nil || desired == nil {
			return
		}
		before := encode(t, observed) + encode(t, last) + encode(t, desired)
		for _, schema := range []merge.Schema{nil, list("map", "name"), list("set"), list("atomic")} {
			result, err := objects(observed, last, desired, schema, nil)
			if before != encode(t, observed)+encode(t, last)+encode(t, desired) {
				t.Fatal("an input was changed")
			}
			if err != nil {
				continue
			}
			if (len(result.Changed) == 0) != merge.Equal(observed, result.Object) {
				t.Errorf("changed %v, from %s to %s", result.Changed, encode(t, observed), encode(t, result.Object))
			}
			again, err := objects(result.Object, desired, desired, schema, nil)
			if err == nil && len(again.Changed) > 0 {
				t.Errorf("merging %s again changes %v to %s", encode(t, result.Object), again.Changed, encode(t, again.Object))
			}
		}
	})
}

func TestEncodeSortsKeys(t *testing.T) {
	text, err := merge.Encode(decode(t, `{"kind":"ConfigMap","apiVersion":"v1","data":{"b":"<","a":null}}`))
	if want := `{"apiVersion":"v1","data":{"a":null,"b":"\u003c"},"kind":"ConfigMap"}`; err != nil || text != want {
		t.Errorf("%s, error %v, want %s", text, err, want)
	}
}

func TestValuesOfSecretsAreHashed(t *testing.T) {
	const secret = `{"apiVersion":"v1","data":{"a":"aHVudGVyMg==","n":null},"kind":"Secret","stringData":{"b":"hunter2"}}`
	text, err := merge.Encode(decode(t, secret))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVyMg") {
		t.Errorf("a value is there in clear: %s", text)
	}
	last := merge.Decode(text)
	for _, field := range []string{"data", "stringData"} {
		values, ok := last[field].(map[string]any)
		if !ok || len(values) == 0 {
			t.Errorf("the keys of %s are not there: %s", field, text)
		}
	}
	other, err := merge.Encode(decode(t, strings.Replace(secret, "hunter2", "hunter3", 1)))
	if err != nil || other == text {
		t.Errorf("another value has the same hash, error %v", err)
	}
	if again, err := merge.Encode(decode(t, secret)); err != nil || again != text {
		t.Errorf("the same value has another hash, error %v", err)
	}
	if content := decode(t, secret); encode(t, content) != secret {
		t.Error("the desired object was changed")
	}
}

func TestOtherKindsAreNotHashed(t *testing.T) {
	text, err := merge.Encode(decode(t, `{"apiVersion":"example.com/v1","data":{"a":"b"},"kind":"Secret"}`))
	if err != nil || !strings.Contains(text, `"a":"b"`) {
		t.Errorf("%s, error %v", text, err)
	}
}

func TestDamagedAnnotationsCountAsNothingApplied(t *testing.T) {
	for _, text := range []string{"", "{", "null", "[]", `"a"`, "\x00"} {
		if last := merge.Decode(text); last != nil {
			t.Errorf("%q is decoded to %v", text, last)
		}
	}
}

func TestStringDataBecomesData(t *testing.T) {
	shown := merge.Observable(decode(t, `{"apiVersion":"v1","data":{"a":"QQ\n==\n","b":"Qg=="},"kind":"Secret","stringData":{"b":"C"}}`))
	if got, want := encode(t, shown), `{"apiVersion":"v1","data":{"a":"QQ==","b":"Qw=="},"kind":"Secret"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"a":1}`)
	f.Add(`{"metadata":{"annotations":{"a":"b"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		last := merge.Decode(text)
		if last == nil {
			return
		}
		encoded, err := merge.Encode(last)
		if err != nil {
			t.Fatal(err)
		}
		if again := merge.Decode(encoded); !merge.IsSecret(last) && !merge.Equal(last, again) {
			t.Errorf("%s became %s", text, encoded)
		}
	})
}

const observedPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","labels":{"app":"a"},"uid":"1","resourceVersion":"2"},
"spec":{"containers":[{"name":"main","image":"nginx","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"ports":[{"containerPort":80,
"protocol":"TCP"}],"resources":{"limits":{"cpu":"1"}},"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"Always"}],
"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","tolerations":[{"key":"a","operator":"Exists"}]},
"status":{"phase":"Running"}}`

const desiredPod = `{"kind":"Pod","metadata":{"name":"a","namespace":"b","labels":{"app":"a"}},
"spec":{"containers":[{"name":"main","image":"nginx","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"ports":[{"containerPort":80}],
"resources":{"limits":{"cpu":"1"}}}]}}`

func BenchmarkMergeOfEqual(b *testing.B) {
	observed, desired := decode(b, observedPod), decode(b, desiredPod)
	b.ReportAllocs()
	for b.Loop() {
		result, err := objects(observed, desired, desired, nil, nil)
		if err != nil || len(result.Changed) > 0 {
			b.Fatal(result.Changed, err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	desired := decode(b, desiredPod)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := merge.Encode(desired); err != nil {
			b.Fatal(err)
		}
	}
}
