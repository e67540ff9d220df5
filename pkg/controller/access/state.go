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

package access

import (
	"fmt"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// maxLines is how many resources with missing rights a text names.
const maxLines = 10

// State is what a service account may do, as far as its controller needs it.
type State struct {
	// Account is the service account, as namespace/name. Empty: the controller has none, and the rest says nothing.
	Account string
	// Known says that the cluster was asked, and not too long ago.
	Known bool
	// Held says that hooks are shown nothing.
	Held bool
	// Problem is why the last review failed, nil if it did not.
	Problem error
	// NotFound says that the account does not exist, NotImpersonated that this server may not act as it.
	NotFound, NotImpersonated bool
	// Missing are the rights that the account lacks.
	Missing []rights.Right
}

// State returns the present state. That of nil is empty.
func (a *Access) State() State {
	if a == nil {
		return State{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Lacks says which rights are missing, as in "list, watch pods; create pods in namespace team". Empty: none.
func (s *State) Lacks() string { return lines(s.Missing) }

func lines(missing []rights.Right) string {
	list := rights.Lines(missing)
	if more := len(list) - maxLines; more > 0 {
		list = append(list[:maxLines:maxLines], fmt.Sprintf("rights on %d more resources", more))
	}
	return strings.Join(list, "; ")
}
