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
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// A write is a request that the kube-apiserver has noted. See audit.k8s.io/v1.
type write struct {
	Stage            string `json:"stage"`
	Verb             string `json:"verb"`
	User             user   `json:"user"`
	ImpersonatedUser *user  `json:"impersonatedUser"`
	ObjectRef        struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

type user struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups"`
}

// String returns verb and resource.
func (w *write) String() string {
	return w.Verb + " " + strings.TrimSuffix(w.ObjectRef.Resource+"/"+w.ObjectRef.Subresource, "/")
}

// writes returns what the server wrote in the stage's namespace, but for events.
func (s *stage) writes() []write {
	s.T.Helper()
	file, err := os.Open(s.AuditLog())
	if err != nil {
		s.T.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // It is read.
	var list []write
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var w write
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			continue // The last line may be half written.
		}
		if w.Stage == "ResponseComplete" && w.User.Username == serverUser && w.ObjectRef.Namespace == s.Name && w.ObjectRef.Resource != "events" {
			list = append(list, w)
		}
	}
	if err := lines.Err(); err != nil {
		s.T.Fatal(err)
	}
	return list
}

// wrote checks that all writes were made as the account, with its groups, and that those wanted are among them.
func (s *stage) wrote(account string, wanted ...string) {
	s.T.Helper()
	var seen []string
	for _, w := range s.writes() {
		if w.ImpersonatedUser == nil {
			s.T.Errorf("the server itself did: %s %s", &w, w.ObjectRef.Name)
			continue
		}
		groups := []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + s.Name}
		if got := slices.Sorted(slices.Values(w.ImpersonatedUser.Groups)); !slices.Equal(got, groups) {
			s.T.Errorf("%s was made with the groups %q", &w, got)
		}
		if w.ImpersonatedUser.Username == "system:serviceaccount:"+s.Name+":"+account && w.ResponseStatus.Code < 300 {
			seen = append(seen, w.String())
		}
	}
	for _, want := range wanted {
		if !slices.Contains(seen, want) {
			s.T.Errorf("%s did not: %s; it did: %q", account, want, slices.Compact(slices.Sorted(slices.Values(seen))))
		}
	}
}

// awaitData waits until a ConfigMap has a greeting.
func (s *stage) awaitData(name, greeting string) {
	s.T.Helper()
	s.Await(fixture.ConfigMaps, name, "to say "+greeting, func(o *unstructured.Unstructured) bool {
		return o != nil && fixture.Value(o, "data", "greeting") == greeting
	})
}
