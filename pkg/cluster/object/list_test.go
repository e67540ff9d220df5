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
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

func TestListsGiveTheirKindToTheirElements(t *testing.T) {
	data := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":2},` +
		`"items":[{"metadata":{"name":"a"}},{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b"}}]}`
	list, err := object.ReadList(strings.NewReader(data), object.ParseOptions{})
	if err != nil || list.ResourceVersion != "7" || list.Continue != "c" || *list.RemainingItemCount != 2 {
		t.Fatalf("read %#v, error %v", list, err)
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

func TestReadListReadsAnyFraming(t *testing.T) {
	large := strings.Repeat(`x\"]`, 100000)
	usual := `{"kind":"ThingList","apiVersion":"e.com/v1","metadata":{"resourceVersion":"7"},"items":[` +
		`{"metadata":{"name":"a]}"}},{"kind":"Thing","metadata":{"name":"b"},"spec":[{"x":"` + large + `"}]}]}`
	for name, tc := range map[string]struct {
		reason, data string
		want         []string
	}{
		"Usual":     {"This is what API servers write.", usual, []string{"a]}", "b"}},
		"Spaced":    {"White space means nothing.", " {\n\"kind\" : \"ThingList\" ,\"apiVersion\":\"e.com/v1\", \"items\" : [ {\"metadata\":{\"name\":\"a\"}} ,\t{} ] } ", []string{"a", ""}},
		"TypeLast":  {"Fields have no order.", `{"items":[{"metadata":{"name":"a"}}],"apiVersion":"e.com/v1","kind":"ThingList"}`, []string{"a"}},
		"NoItems":   {"A list may leave them out.", `{"apiVersion":"e.com/v1","kind":"ThingList"}`, nil},
		"Null":      {"Go writes an empty list so.", `{"apiVersion":"e.com/v1","kind":"ThingList","items":null,"more":[1,-2.5e3,true,{}]}`, nil},
		"Empty":     {"Nothing is there.", `{"apiVersion":"e.com/v1","kind":"ThingList","items":[]}`, nil},
		"Twice":     {"The last of duplicate fields counts.", `{"items":[{}],"apiVersion":"e.com/v1","kind":"ThingList","items":[{"metadata":{"name":"b"}}]}`, []string{"b"}},
		"EscapedID": {"Names of fields may have escapes.", `{"apiVersion":"e.com/v1","k\u0069nd":"ThingList","items":[{}]}`, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			for framing, source := range map[string]io.Reader{
				"at once": strings.NewReader(tc.data), "byte by byte": iotest.OneByteReader(strings.NewReader(tc.data)),
				"in halves": iotest.HalfReader(strings.NewReader(tc.data)), "end with data": iotest.DataErrReader(strings.NewReader(tc.data)),
			} {
				list, err := object.ReadList(source, object.ParseOptions{})
				if err != nil {
					t.Fatalf("%s: %v", framing, err)
				}
				var got []string
				for _, o := range list.Items {
					got = append(got, o.Name())
					if o.Kind() != "Thing" || o.APIVersion() != "e.com/v1" {
						t.Errorf("%s: %s is a %s of %s", framing, o, o.Kind(), o.APIVersion())
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s\n%s: names (-want +got)\n%s", tc.reason, framing, diff)
				}
			}
		})
	}
}

// The names of a CustomResourceDefinition say of what kind its lists are.
func TestReadListReadsListsOfAnyKindThatHaveItems(t *testing.T) {
	list, err := object.ReadList(strings.NewReader(
		`{"kind":"FooCollection","apiVersion":"e.com/v1","items":[{"apiVersion":"e.com/v1","kind":"Foo","metadata":{"name":"a"}}]}`), object.ParseOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Kind() != "Foo" || list.Items[0].Name() != "a" {
		t.Errorf("got %v, error %v", list, err)
	}
	empty, err := object.ReadList(strings.NewReader(`{"items":[],"kind":"FooCollection","apiVersion":"e.com/v1"}`), object.ParseOptions{})
	if err != nil || len(empty.Items) != 0 {
		t.Errorf("got %v, error %v", empty, err)
	}
}

func TestReadListRefusesWhatIsNoList(t *testing.T) {
	reset := errors.New("connection reset")
	for name, tc := range map[string]struct {
		reason string
		source io.Reader
		want   error
	}{
		"Nothing":     {"A response without a body is no list.", strings.NewReader(""), io.ErrUnexpectedEOF},
		"Truncated":   {"Part of a list would look like deletions.", strings.NewReader(`{"kind":"PodList","apiVersion":"v1","items":[{},`), io.ErrUnexpectedEOF},
		"InElement":   {"Likewise.", strings.NewReader(`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":`), io.ErrUnexpectedEOF},
		"Unclosed":    {"Likewise.", strings.NewReader(`{"kind":"PodList","apiVersion":"v1","items":[{}]`), io.ErrUnexpectedEOF},
		"Broken":      {"The cause is passed on.", io.MultiReader(strings.NewReader(`{"kind":"PodList","items":[{}`), iotest.ErrReader(reset)), reset},
		"OtherKind":   {"A Table has no objects.", strings.NewReader(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}`), nil},
		"NoObject":    {"A list is an object.", strings.NewReader(`[]`), nil},
		"NoArray":     {"Items are an array.", strings.NewReader(`{"kind":"PodList","items":{}}`), nil},
		"NoComma":     {"Elements are separated.", strings.NewReader(`{"kind":"PodList","apiVersion":"v1","items":[{}{}]}`), nil},
		"LastComma":   {"JSON has no trailing comma.", strings.NewReader(`{"kind":"PodList","apiVersion":"v1","items":[{},]}`), nil},
		"NoKey":       {"Keys are strings.", strings.NewReader(`{kind:"PodList"}`), nil},
		"BadElement":  {"Elements are checked.", strings.NewReader(`{"kind":"PodList","apiVersion":"v1","items":[{"a":01}]}`), nil},
		"WrongEnd":    {"Brackets match.", strings.NewReader(`{"kind":"PodList","apiVersion":"v1","items":[{"a":[}]]}`), nil},
		"BadMetadata": {"Other fields are checked, too.", strings.NewReader(`{"kind":"PodList","apiVersion":"v1","metadata":{"x":tru},"items":[]}`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := object.ReadList(tc.source, object.ParseOptions{})
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("%s\ngot %v, error %v, want %v", tc.reason, list, err, tc.want)
			}
		})
	}
}

// FuzzReadList: what is read as a list is one for encoding/json, with the same elements.
func FuzzReadList(f *testing.F) {
	f.Add([]byte(`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}},{}]}`))
	f.Add([]byte(`{"items":[{}],"kind":"List","apiVersion":"v1","metadata":{"remainingItemCount":3}}`))
	f.Add([]byte("{\"kind\":\"XList\",\"items\":[{\"\\"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := object.ReadList(iotest.HalfReader(strings.NewReader(string(data))), object.ParseOptions{})
		if err != nil {
			return
		}
		// What follows the list is not read.
		var want map[string]json.RawMessage
		if err := json.NewDecoder(strings.NewReader(string(data))).Decode(&want); err != nil {
			t.Fatalf("%q was read: %v", data, err)
		}
		var items []json.RawMessage
		if raw, ok := want["items"]; ok {
			if err := json.Unmarshal(raw, &items); err != nil {
				t.Fatalf("items of %q: %v", data, err)
			}
		}
		if len(items) != len(list.Items) {
			t.Fatalf("%q has %d elements, %d were read", data, len(items), len(list.Items))
		}
	})
}

func TestEventReaderReadsAnyFraming(t *testing.T) {
	const (
		added    = `{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a}\"{\\","resourceVersion":"1"}}}`
		swapped  = `{ "object" : {"kind":"Pod","metadata":{"name":"b","resourceVersion":"2"}} , "x":[{}], "type" : "MODIFIED" }`
		bookmark = `{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"3","annotations":{"k8s.io/initial-events-end":"true"}}}}`
		gone     = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}}`
	)
	large := `{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"large","resourceVersion":"4"},"spec":"` + strings.Repeat(`\\x"`[:2], 400000) + `"}}`
	stream := added + "\n" + swapped + bookmark + "\r\n\t " + large + "\n" + added + "\n" + gone + "\n"
	want := []string{"ADDED 1", "MODIFIED 2", "BOOKMARK 3 end", "ADDED 4", "ADDED 1", "ERROR 410"}
	for name, source := range map[string]io.Reader{
		"AtOnce":       strings.NewReader(stream),
		"ByteByByte":   iotest.OneByteReader(strings.NewReader(stream)),
		"InHalves":     iotest.HalfReader(strings.NewReader(stream)),
		"EndWithData":  iotest.DataErrReader(strings.NewReader(stream)),
		"TimesOutLast": iotest.DataErrReader(iotest.HalfReader(strings.NewReader(stream))),
	} {
		t.Run(name, func(t *testing.T) {
			reader := object.NewEventReader(io.NopCloser(source), object.ParseOptions{})
			defer reader.Close()
			var got []string
			for {
				kind, content, err := reader.Decode()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if status, ok := content.(*metav1.Status); ok {
					got = append(got, string(kind)+" 410")
					if status.Code != 410 {
						t.Errorf("got the error %v", status)
					}
					continue
				}
				accessor, err := meta.Accessor(content)
				if err != nil {
					t.Fatal(err)
				}
				text := string(kind) + " " + accessor.GetResourceVersion()
				if accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
					text += " end"
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("events (-want +got)\n%s", diff)
			}
		})
	}
}

func TestEventReaderReportsBrokenStreams(t *testing.T) {
	broken := errors.New("connection reset")
	for name, tc := range map[string]struct {
		reason string
		source io.Reader
		want   error
	}{
		"End":         {"A watch ends when its time is up.", strings.NewReader(" \n"), io.EOF},
		"WithinEvent": {"An event that is cut off is no event.", strings.NewReader(`{"type":"ADDED","object":{`), io.ErrUnexpectedEOF},
		"Broken":      {"The cause is passed on.", io.MultiReader(strings.NewReader(`{"type"`), iotest.ErrReader(broken)), broken},
		"NoObject":    {"An event is an object.", strings.NewReader(`[]`), nil},
		"NoContent":   {"An event has an object.", strings.NewReader(`{"type":"ADDED"}`), nil},
		"UnknownType": {"A type that is not known cannot be applied.", strings.NewReader(`{"type":"NEW","object":{}}`), nil},
		"Trailing":    {"What stands behind the object is checked.", strings.NewReader(`{"type":"ADDED","object":{},"x":y}`), nil},
		"BadObject":   {"Objects are checked.", strings.NewReader(`{"type":"ADDED","object":{"a":01}}`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			reader := object.NewEventReader(io.NopCloser(tc.source), object.ParseOptions{})
			kind, content, err := reader.Decode()
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("%s\ngot %s %v, error %v, want %v", tc.reason, kind, content, err, tc.want)
			}
		})
	}
}

// FuzzEventReader: whatever a stream contains, reading it ends, and what it yields is an event.
func FuzzEventReader(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED","object":{"metadata":{}}}{"object":{},"type":"DELETED"}`))
	f.Add([]byte(`{"type":"ERROR","object":{"kind":"Status"}}`))
	f.Add([]byte("\n{\"\\"))
	f.Fuzz(func(t *testing.T, data []byte) {
		reader := object.NewEventReader(io.NopCloser(iotest.HalfReader(strings.NewReader(string(data)))), object.ParseOptions{})
		for range len(data) + 1 {
			kind, content, err := reader.Decode()
			if err != nil {
				return
			}
			switch kind {
			case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
			default:
				t.Fatalf("type %q in %q", kind, data)
			}
			if content == nil {
				t.Fatalf("no object in %q", data)
			}
		}
		t.Fatalf("reading %q does not end", data)
	})
}

// configMap is about what a controller creates: 0.9 KB, of which managedFields are a third.
func configMap(i int) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"child-%[1]d","namespace":"bench","uid":"9f3c1f5e-7a0b-4f57-9d0a-%012[1]d",`+
		`"resourceVersion":"%[1]d","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"bench","controller-uid":"11111111-2222-3333-4444-%012[1]d"},`+
		`"annotations":{"metacontroller.k8s.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"data\":{\"key\":\"value\"}}"},`+
		`"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Parent","name":"parent-%[1]d","uid":"11111111-2222-3333-4444-%012[1]d","controller":true,"blockOwnerDeletion":true}],`+
		`"managedFields":[{"manager":"metacontroller","operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:key":{}},"f:metadata":{"f:annotations":{".":{}},"f:labels":{".":{},"f:app":{}},"f:ownerReferences":{".":{}}}}}]},`+
		`"data":{"key":"value"}}`, i)
}

func BenchmarkParse(b *testing.B) {
	data := []byte(configMap(7))
	b.Run("Compact", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := object.Parse(data, object.ParseOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Unstructured", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			var u unstructured.Unstructured
			if err := u.UnmarshalJSON(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEventReader(b *testing.B) {
	event := `{"type":"ADDED","object":` + configMap(7) + "}\n"
	b.ReportAllocs()
	const batch = 1000
	stream := strings.Repeat(event, batch)
	for b.Loop() {
		reader := object.NewEventReader(io.NopCloser(strings.NewReader(stream)), object.ParseOptions{})
		for range batch {
			if _, _, err := reader.Decode(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/event")
}

// BenchmarkMemory measures what one object keeps, compact and as client-go's dynamic informers would keep it.
func BenchmarkMemory(b *testing.B) {
	measure := func(b *testing.B, parse func(data []byte) (any, error)) {
		const count = 10000
		for b.Loop() {
			kept := make([]any, 0, count)
			before := heap()
			for i := range count {
				o, err := parse([]byte(configMap(i)))
				if err != nil {
					b.Fatal(err)
				}
				kept = append(kept, o)
			}
			b.ReportMetric(float64(heap()-before)/count, "bytes/object")
			runtime.KeepAlive(kept)
		}
	}
	b.Run("Compact", func(b *testing.B) {
		measure(b, func(data []byte) (any, error) { return object.Parse(data, object.ParseOptions{}) })
	})
	b.Run("Unstructured", func(b *testing.B) {
		measure(b, func(data []byte) (any, error) {
			u := &unstructured.Unstructured{}
			err := u.UnmarshalJSON(data)
			return u, err
		})
	})
	b.Run("UnstructuredWithoutManagedFields", func(b *testing.B) {
		measure(b, func(data []byte) (any, error) {
			u := &unstructured.Unstructured{}
			err := u.UnmarshalJSON(data)
			u.SetManagedFields(nil)
			return u, err
		})
	})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
