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

// renewal is a successful write of the Lease.
type renewal struct {
	at time.Time
	by string
}

// renewals returns the writes of the Lease in their order.
func (p *pair) renewals() (list []renewal) {
	p.T.Helper()
	for _, e := range p.Audited(p.T, leaseNamespace) {
		if e.ObjectRef.Resource == "leases" && e.ObjectRef.Name == p.lease && succeeded(&e) {
			list = append(list, renewal{e.StageTimestamp.Time, user(&e)})
		}
	}
	if len(list) == 0 {
		p.T.Fatal("nobody wrote the Lease")
	}
	slices.SortStableFunc(list, func(a, b renewal) int { return a.at.Compare(b.at) })
	return list
}

// refused checks that the writes of a replica that arrived without the Lease are no more than were under way, and were all refused.
func (p *pair) refused(how string, late []auditv1.Event, most int) {
	p.T.Helper()
	if len(late) > 0 {
		p.figures.Sayf("%d writes of the one that %s arrived late, and were refused", len(late), how)
	}
	if len(late) > most {
		p.T.Errorf("%d writes of the one that %s arrived late, want %d at most", len(late), how, most)
	}
	for _, e := range late {
		if succeeded(&e) {
			p.T.Errorf("%s arrived late, %s, and was not refused", cluster.AuditedRequest(&e), e.ObjectRef.Name)
		}
	}
}

// withoutLease returns the writes that a replica asked for after a time and before it had written the Lease again.
func (p *pair) withoutLease(r *replica, after time.Time) []auditv1.Event {
	p.T.Helper()
	until := time.Now()
	for _, x := range p.renewals() {
		if x.by == r.user && x.at.After(after) {
			until = x.at
			break
		}
	}
	return slices.DeleteFunc(slices.Concat(p.requestsOf(r), p.ownWrites(r)), func(e auditv1.Event) bool {
		return !e.RequestReceivedTimestamp.After(after) || !e.RequestReceivedTimestamp.Time.Before(until)
	})
}

// judge checks that every write was made by the replica that held the Lease: the one that had written it last.
func (p *pair) judge() {
	p.T.Helper()
	renewals := p.renewals()
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

// ownWrites returns what the engine of a replica wrote to the replica's own API.
func (p *pair) ownWrites(r *replica) (list []auditv1.Event) {
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
		if e.User.Username == "system:apiserver" && e.ObjectRef != nil && e.ObjectRef.APIGroup == "metacontroller.k8s.io" {
			list = append(list, e)
		}
	}
	if err := lines.Err(); err != nil {
		p.T.Fatal(err)
	}
	return list
}
