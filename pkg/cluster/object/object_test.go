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

package object_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a\u0062","namespace":"ns","uid":"u-1","resourceVersion":"12",
 "generation":3,"deletionTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"x","caf\u00e9":"ü"},
 "annotations":{"k":"{\"managedFields\":[]}","e":""},"finalizers":["f/1"],
 "ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u-0"},{"apiVersion":"e/v1","kind":"T","name":"t","uid":"u-2","controller":true,"blockOwnerDeletion":true}],
 "managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]},"spec":{"selector":{"matchLabels":{"a":"b"}},"n":1,"x":1.5,"s":"}"},"status":null}`

func TestParseReadsWhatTheEngineNeeds(t *testing.T) {
	o, err := object.Parse([]byte(pod), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "ab", "uid": "u-1", "version": "12", "generation": int64(3),
		"labels": map[string]string{"app": "x", "café": "ü"}, "annotations": map[string]string{"k": `{"managedFields":[]}`, "e": ""},
		"finalizers": []string{"f/1"}, "deleting": true, "controller": "u-2", "owners": 2, "string": "Pod ns/ab",
		"selector": `{"matchLabels":{"a":"b"}}`,
	}
	selector, _ := o.Field("spec", "selector")
	got := map[string]any{
		"apiVersion": o.APIVersion(), "kind": o.Kind(), "namespace": o.Namespace(), "name": o.Name(), "uid": string(o.UID()),
		"version": o.ResourceVersion(), "generation": o.Generation(), "labels": o.Labels(), "annotations": o.Annotations(),
		"finalizers": o.Finalizers(), "deleting": o.Deleting(), "controller": string(o.Controller().UID),
		"owners": len(o.OwnerReferences()), "string": o.String(), "selector": string(selector),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, ok := o.Field("spec", "absent"); ok {
		t.Error("a field that is not there was found")
	}
	if value, ok := o.Annotation("e"); !ok || value != "" {
		t.Errorf("Annotation(e) = %q, %v", value, ok)
	}
}

func TestManagedFieldsAreLeftOutWhereverTheyStand(t *testing.T) {
	for name, metadata := range map[string]string{
		"Only":   `{"managedFields":[{"a":"]"}]}`,
		"First":  `{"managedFields":[{"a":"]"}],"name":"n"}`,
		"Middle": `{"name":"n" , "managedFields" : [ {} ] , "uid":"u"}`,
		"Last":   `{"name":"n","managedFields":null}`,
		"Absent": `{"name":"n"}`,
	} {
		t.Run(name, func(t *testing.T) {
			input := `{"apiVersion":"v1","metadata":` + metadata + `,"spec":{"managedFields":[1]}}`
			var want map[string]any
			if err := json.Unmarshal([]byte(input), &want); err != nil {
				t.Fatal(err)
			}
			unstructured.RemoveNestedField(want, "metadata", "managedFields")
			o, err := object.Parse([]byte(input), object.ParseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(o.JSON(), &got); err != nil {
				t.Fatalf("%s: %v", o.JSON(), err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			kept, err := object.Parse([]byte(input), object.ParseOptions{KeepManagedFields: true})
			if err != nil || string(kept.JSON()) != input {
				t.Errorf("kept: %s, %v", kept.JSON(), err)
			}
		})
	}
}

func TestListsGiveTheirKindToTheirElements(t *testing.T) {
	data := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":2},` +
		`"items":[{"metadata":{"name":"a"}},{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b"}}]}`
	decoded, _, err := object.Codec{}.Decode([]byte(data), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, ok := decoded.(*object.List)
	if !ok || list.ResourceVersion != "7" || list.Continue != "c" || *list.RemainingItemCount != 2 {
		t.Fatalf("decoded %#v", decoded)
	}
	items, err := meta.ExtractList(list)
	if err != nil || len(items) != 2 {
		t.Fatalf("ExtractList: %v, %v", items, err)
	}
	for i, name := range []string{"a", "b"} {
		o := items[i].(*object.Object)
		if o.Name() != name || o.Kind() != "Pod" || o.APIVersion() != "v1" {
			t.Errorf("element %d is %s of %s", i, o, o.APIVersion())
		}
		if content, err := o.Decode(); err != nil || content["kind"] != "Pod" {
			t.Errorf("element %d decodes to %v, %v", i, content, err)
		}
	}
}

func TestWatchEventsAndErrorsAreDecoded(t *testing.T) {
	var event metav1.WatchEvent
	data := `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`
	if _, _, err := (object.Codec{}).Decode([]byte(data), nil, &event); err != nil || event.Type != "BOOKMARK" {
		t.Fatalf("%v, %v", event, err)
	}
	decoded, err := runtime.Decode(object.Codec{}, event.Object.Raw)
	if err != nil {
		t.Fatal(err)
	}
	accessor, err := meta.Accessor(decoded)
	if err != nil || accessor.GetResourceVersion() != "9" || accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("bookmark reads as %v, %v", accessor, err)
	}
	decoded, err = runtime.Decode(object.Codec{}, []byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":410,"reason":"Expired"}`))
	if status, ok := decoded.(*metav1.Status); err != nil || !ok || status.Code != 410 {
		t.Errorf("error reads as %#v, %v", decoded, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{pod, `{}`, `{"metadata":null}`, `{"metadata":{"labels":null}}`, `[`, `{"metadata":{"name":1}}`, "", `{"a":"\`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := object.Parse(data, object.ParseOptions{})
		if err != nil || !json.Valid(data) {
			return
		}
		var full metav1.PartialObjectMetadata
		if json.Unmarshal(data, &full) != nil {
			return
		}
		if !json.Valid(o.JSON()) {
			t.Fatalf("valid %q became invalid %q", data, o.JSON())
		}
		o.Annotations()
		o.Field("spec")
		if _, err := object.ParseList(data, object.ParseOptions{}); err != nil && json.Valid(data) {
			t.Logf("not a list: %v", err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	data := []byte(pod)
	b.Run("compact", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := object.Parse(data, object.ParseOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unstructured", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var u unstructured.Unstructured
			if err := u.UnmarshalJSON(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
