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

package client_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
)

func pemOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// BenchmarkCreate has the server's part in it, which is small: it reads the body and writes an object of 2 KB.
func BenchmarkCreate(b *testing.B) {
	response := strings.Replace(stored, `"metadata"`, `"data":{"k":"`+strings.Repeat("x", 1900)+`"},"metadata"`, 1)
	c := against(b, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			b.Error(err)
		}
		fmt.Fprint(w, response)
	})
	target := client.Target{Resource: configMaps, Namespace: "default"}
	body := []byte(response)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Create(b.Context(), target, body); err != nil {
			b.Fatal(err)
		}
	}
}
