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

package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Audited returns the requests about objects of a namespace that the kube-apiserver has completed, in its order. It is there with the
// option [Audit].
func (c *Cluster) Audited(t testing.TB, namespace string) []auditv1.Event {
	t.Helper()
	file, err := os.Open(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // It is read.
	list := []auditv1.Event{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	part := []byte(`"namespace":"` + namespace + `"`)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), part) {
			continue // Most of the log is about others, and is read again and again.
		}
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // The last line may be half written.
		}
		if e.Stage == auditv1.StageResponseComplete && e.ObjectRef != nil && e.ObjectRef.Namespace == namespace {
			list = append(list, e)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// AuditedRequest is verb and resource of a request, as in "patch things/status".
func AuditedRequest(e *auditv1.Event) string {
	return e.Verb + " " + strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
}
