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

package worker

import (
	"sync/atomic"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Counters count what a hosted controller did. They are safe for concurrent use; the zero value is ready.
type Counters struct {
	// Syncs counts syncs that ended without an error.
	Syncs atomic.Int64
	// Failed counts syncs that ended with an error.
	Failed atomic.Int64
	// Rejected counts hook responses that could not be used.
	Rejected atomic.Int64
	// Conflicts counts children that could not be created because a stranger has their name.
	Conflicts atomic.Int64
	// Flapping counts children that were left alone because they kept changing back.
	Flapping atomic.Int64
}

// Snapshot returns the counters in the form in which they are published, with the number of parents given.
func (c *Counters) Snapshot(parents int) *v1alpha1.ControllerCounters {
	return &v1alpha1.ControllerCounters{
		Parents:         int64(parents),
		Syncs:           c.Syncs.Load(),
		FailedSyncs:     c.Failed.Load(),
		RejectedAnswers: c.Rejected.Load(),
		Conflicts:       c.Conflicts.Load(),
		Flapping:        c.Flapping.Load(),
	}
}
