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

package replicas

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// requestsOf returns what a replica wrote in the case's namespace, in the order of the kube-apiserver, refused or not.
func (p *pair) requestsOf(r *replica) []auditv1.Event {
	p.T.Helper()
	return slices.DeleteFunc(p.Audited(p.T, p.Name), func(e auditv1.Event) bool { return user(&e) != r.user })
}

// user is as whom a request was made.
func user(e *auditv1.Event) string {
	if e.ImpersonatedUser != nil {
		return e.ImpersonatedUser.Username
	}
	return e.User.Username
}

func succeeded(e *auditv1.Event) bool { return e.ResponseStatus == nil || e.ResponseStatus.Code < 300 }

// firstAfter returns when the first successful write of a replica after a time was received.
func (p *pair) firstAfter(r *replica, after time.Time) (time.Time, bool) {
	p.T.Helper()
	for _, e := range p.requestsOf(r) {
		if succeeded(&e) && e.RequestReceivedTimestamp.After(after) {
			return e.RequestReceivedTimestamp.Time, true
		}
	}
	return time.Time{}, false
}

// judge checks that every write was made by the replica that held the Lease: the one that had written it last.
func (p *pair) judge() {
	p.T.Helper()
	type renewal struct {
		at time.Time
		by string
	}
	var renewals []renewal
	for _, e := range p.Audited(p.T, leaseNamespace) {
		if e.ObjectRef.Resource == "leases" && e.ObjectRef.Name == p.lease && succeeded(&e) {
			renewals = append(renewals, renewal{e.StageTimestamp.Time, user(&e)})
		}
	}
	if len(renewals) == 0 {
		p.T.Fatal("nobody wrote the Lease")
	}
	slices.SortStableFunc(renewals, func(a, b renewal) int { return a.at.Compare(b.at) })
	writes := 0
	for _, e := range p.Audited(p.T, p.Name) {
		by := user(&e)
		if by != p.first.user && by != p.second.user || !succeeded(&e) {
			continue
		}
		writes++
		holder := ""
		for _, r := range renewals {
			if r.at.After(e.RequestReceivedTimestamp.Time) {
				break
			}
			holder = r.by
		}
		if holder != by {
			p.T.Errorf("%s made %s %s at %s, when %q held the Lease", by, cluster.AuditedRequest(&e), e.ObjectRef.Name,
				e.RequestReceivedTimestamp.Format(time.RFC3339Nano), holder)
		}
	}
	if writes == 0 {
		p.T.Error("no replica wrote anything")
	}
}

// ownWrites returns what the engine of a replica wrote to the replica's own API after a time.
func (p *pair) ownWrites(r *replica, after time.Time) (list []auditv1.Event) {
	p.T.Helper()
	file, err := os.Open(r.audit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Nothing was written.
	}
	if err != nil {
		p.T.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // It is read.
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // The last line may be half written.
		}
		if e.User.Username == "system:apiserver" && e.ObjectRef != nil && e.ObjectRef.APIGroup == "metacontroller.k8s.io" && e.RequestReceivedTimestamp.After(after) {
			list = append(list, e)
		}
	}
	if err := lines.Err(); err != nil {
		p.T.Fatal(err)
	}
	return list
}
