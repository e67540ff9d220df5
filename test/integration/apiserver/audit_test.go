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

package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// auditEvent is a line of the audit log, as far as the test reads it.
type auditEvent struct {
	Level string `json:"level"`
	Verb  string `json:"verb"`
	URI   string `json:"requestURI"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	Object *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Request  json.RawMessage `json:"requestObject"`
	Response json.RawMessage `json:"responseObject"`
}

// TestAuditPolicyShowsWhoChangedWhat uses the example of artifacts/audit.
func TestAuditPolicyShowsWhoChangedWhat(t *testing.T) {
	c := cluster.Shared(t)
	log := filepath.Join(t.TempDir(), "audit.log")
	server.Start(t, c, server.Options{Args: []string{
		"--audit-policy-file", filepath.Join(cluster.Root(), "artifacts", "audit", "policy.yaml"), "--audit-log-path", log,
	}})
	c.KubectlInput(t, controller("audited"), "create", "-f", "-")
	c.Kubectl(t, "get", "compositecontroller", "audited")
	c.Kubectl(t, "get", "--raw", "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/audited/parents")
	c.Kubectl(t, "delete", "compositecontroller", "audited")
	// It was the last request, so that all others are noted when it is.
	cluster.Eventually(t, limit, "the deletion in the audit log", func(context.Context) (bool, string) {
		events, err := readAudit(log)
		return err == nil && len(named(events, "delete", "")) > 0, fmt.Sprintf("%d events: %v", len(events), err)
	})
	events, err := readAudit(log)
	if err != nil {
		t.Fatal(err)
	}
	created := named(events, "create", "")
	if len(created) != 1 || created[0].Level != "Request" || !strings.Contains(string(created[0].Request), "http://127.0.0.1:1/") || created[0].User.Username == "" {
		t.Errorf("the creation is noted as %+v", created)
	}
	if asked := named(events, "get", "parents"); len(asked) != 1 || asked[0].Level != "Metadata" || len(asked[0].Response) > 0 {
		t.Errorf("who asked for the parents is noted as %+v", asked)
	}
	if seen := named(events, "get", ""); len(seen) > 0 {
		t.Errorf("reading is noted: %+v", seen)
	}
	for _, e := range events {
		if e.User.Username == "system:apiserver" || strings.HasPrefix(e.URI, "/readyz") || strings.HasPrefix(e.URI, "/apis?") {
			t.Errorf("%s %s of %s is noted", e.Verb, e.URI, e.User.Username)
		}
	}
}

func named(events []auditEvent, verb, subresource string) (found []auditEvent) {
	for _, e := range events {
		if e.Verb == verb && e.Object != nil && e.Object.Name == "audited" && e.Object.Subresource == subresource {
			found = append(found, e)
		}
	}
	return found
}

func readAudit(path string) (events []auditEvent, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		events = append(events, e)
	}
	return events, lines.Err()
}
