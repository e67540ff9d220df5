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
	// lines have its name in them, and are not decoded yet.
	lines  [][]byte
	events []auditv1.Event
}

// Audited returns the requests about objects of a namespace that the kube-apiserver has completed, in its order. It is there with the
// option [Audit].
func (c *Cluster) Audited(t testing.TB, namespace string) []auditv1.Event {
	t.Helper()
	c.auditing.Lock()
	defer c.auditing.Unlock()
	if err := c.readAudit(); err != nil {
		t.Fatal(err)
	}
	a := c.audits[namespace]
	if a == nil {
		return nil
	}
	for _, line := range a.lines {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("reading %q in the audit log: %v", line, err)
		}
		if e.Stage == auditv1.StageResponseComplete && e.ObjectRef != nil && e.ObjectRef.Namespace == namespace {
			a.events = append(a.events, e)
		}
	}
	a.lines = nil
	return slices.Clone(a.events)
}

// readAudit reads what is new in the log, once for all namespaces.
func (c *Cluster) readAudit() error {
	file, err := os.Open(c.AuditLog())
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close() //nolint:errcheck // It is read.
	if _, err := file.Seek(c.auditRead, io.SeekStart); err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	for lines := bufio.NewReaderSize(file, 1<<16); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // The last line may be half written.
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		c.auditRead += int64(len(line))
		c.addAudit(line)
	}
}

// addAudit keeps a line for each namespace that it names: most of them are never asked for, and to decode a line takes long.
func (c *Cluster) addAudit(line []byte) {
	const field = `"namespace":"`
	for rest := line; ; {
		_, after, found := bytes.Cut(rest, []byte(field))
		if !found {
			return
		}
		name, others, _ := bytes.Cut(after, []byte(`"`))
		rest = others
		a := c.audits[string(name)]
		if a == nil {
			if c.audits == nil {
				c.audits = map[string]*audited{}
			}
			a = &audited{}
			c.audits[string(name)] = a
		}
		if n := len(a.lines); n == 0 || &a.lines[n-1][0] != &line[0] {
			a.lines = append(a.lines, line)
		}
	}
}

// AuditedRequest is verb and resource of a request, as in "patch things/status".
func AuditedRequest(e *auditv1.Event) string {
	return e.Verb + " " + strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
}
