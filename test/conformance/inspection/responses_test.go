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

package inspection

import (
	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// responsesAreTheHooks has the hook called with the request that is shown, and nothing done with its response.
func (s *stage) responsesAreTheHooks(synced int) {
	s.T.Helper()
	called, err := s.requests(s.admin(), v1alpha1.HookRequestOptions{Namespace: s.Name, Name: "a", Call: true})
	if err != nil || len(called.Items) != 1 || called.Items[0].Response == nil {
		s.T.Fatalf("the requests are %+v, error %v", called, err)
	}
	if sent := s.Requests("/hook"); len(sent) < synced+2 {
		s.T.Errorf("the hook got %d requests, want %d", len(sent), synced+2)
	} else if diff := cmp.Diff(decode(s.T, sent[len(sent)-1].Body), decode(s.T, called.Items[0].Body.Raw)); diff != "" {
		s.T.Errorf("the request is another one (-sent +shown):\n%s", diff)
	}
	response, ok := decode(s.T, called.Items[0].Response.Raw).(map[string]any)
	if children, _ := response[s.childrenField()].([]any); !ok || len(children) != 1 {
		s.T.Errorf("the response is %s", called.Items[0].Response.Raw)
	}
}
