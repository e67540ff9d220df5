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
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// audited is what was read of the audit log about one namespace.
type audited struct {
	// read is how much of the log that was, in whole lines.
	read   int64
	events []auditv1.Event
}

// Audited returns the requests about objects of a namespace that the kube-apiserver has completed, in its order. It is there with the
// option [Audit].
func (c *Cluster) Audited(t testing.TB, namespace string) []auditv1.Event {
	t.Helper()
	c.auditing.Lock()
	defer c.auditing.Unlock()
	if c.audits == nil {
		c.audits = map[string]*audited{}
	}
	if c.audits[namespace] == nil {
		c.audits[namespace] = &audited{}
	}
	a := c.audits[namespace]
	file, err := os.Open(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // It is read.
	if _, err := file.Seek(a.read, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewReaderSize(file, 1<<16); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return slices.Clone(a.events) // The last line may be half written.
		}
		if err != nil {
			t.Fatal(err)
		}
		a.read += int64(len(line))
		if err := a.add(line, namespace); err != nil {
			t.Fatal(err)
		}
	}
}

// add adds what a line tells of a namespace.
func (a *audited) add(line []byte, namespace string) error {
	if !bytes.Contains(line, []byte(`"namespace":"`+namespace+`"`)) {
		return nil // Most of the log is about others.
	}
	var e auditv1.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("reading %q in the audit log: %w", line, err)
	}
	if e.Stage == auditv1.StageResponseComplete && e.ObjectRef != nil && e.ObjectRef.Namespace == namespace {
		a.events = append(a.events, e)
	}
	return nil
}

// AuditedRequest is verb and resource of a request, as in "patch things/status".
func AuditedRequest(e *auditv1.Event) string {
	return e.Verb + " " + strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
}
