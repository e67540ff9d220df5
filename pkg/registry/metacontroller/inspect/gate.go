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

package inspect

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// maxPlans and maxRequests are how many plans, and how many requests of hooks, are worked out at the same time.
	maxPlans    = 2
	maxRequests = 4
	// retrySeconds is what a caller is told who is refused because of that.
	retrySeconds = 2
)

// gate bounds how many requests are answered at the same time.
type gate struct {
	what  string
	slots chan struct{}
}

func newGate(what string, n int) gate { return gate{what: what, slots: make(chan struct{}, n)} }

// enter lets a request in until leave is called. The error, TooManyRequests, says that there are enough.
func (g gate) enter() (leave func(), err error) {
	select {
	case g.slots <- struct{}{}:
		return func() { <-g.slots }, nil
	default:
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf(
			"%d %s are being worked out already, which is the most at the same time; try again", cap(g.slots), g.what), retrySeconds)
	}
}
