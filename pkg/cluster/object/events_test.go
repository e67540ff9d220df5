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
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

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
