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

package accounts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// writes returns what the server wrote in the stage's namespace, but for events.
func (s *stage) writes() []auditv1.Event {
	s.T.Helper()
	return slices.DeleteFunc(s.Audited(s.T, s.Name), func(e auditv1.Event) bool {
		return e.User.Username != serverUser || e.ObjectRef.Resource == "events"
	})
}

// wrote checks that all writes were made as the account, with its groups, and waits for those wanted: what a test has seen of a sync may be its
// first write, and the API server logs a request after its response.
func (s *stage) wrote(account string, wanted ...string) {
	s.T.Helper()
	cluster.Eventually(s.T, s.Limit, account+" to do: "+strings.Join(wanted, ", "), func(context.Context) (bool, string) {
		seen := s.doneBy(account)
		return !slices.ContainsFunc(wanted, func(want string) bool { return !slices.Contains(seen, want) }), fmt.Sprintf("%q", seen)
	})
	groups := []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + s.Name}
	for _, w := range s.writes() {
		if w.ImpersonatedUser == nil {
			s.T.Errorf("the server itself did: %s %s", cluster.AuditedRequest(&w), w.ObjectRef.Name)
			continue
		}
		if got := slices.Sorted(slices.Values(w.ImpersonatedUser.Groups)); !slices.Equal(got, groups) {
			s.T.Errorf("%s was made with the groups %q", cluster.AuditedRequest(&w), got)
		}
	}
}

// doneBy returns the writes that were made as an account and succeeded, each once.
func (s *stage) doneBy(account string) []string {
	s.T.Helper()
	var done []string
	for _, w := range s.writes() {
		if w.ImpersonatedUser != nil && w.ImpersonatedUser.Username == "system:serviceaccount:"+s.Name+":"+account &&
			(w.ResponseStatus == nil || w.ResponseStatus.Code < 300) {
			done = append(done, cluster.AuditedRequest(&w))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(done)))
}

// awaitData waits until a ConfigMap has a greeting.
func (s *stage) awaitData(name, greeting string) {
	s.T.Helper()
	s.Await(fixture.ConfigMaps, name, "to say "+greeting, func(o *unstructured.Unstructured) bool {
		return o != nil && fixture.Value(o, "data", "greeting") == greeting
	})
}
