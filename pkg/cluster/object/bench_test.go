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
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

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
