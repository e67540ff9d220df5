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

package workqueue

// Priority says how urgent a key is. The smaller value goes first; the zero value is Live.
type Priority int8

const (
	// Live is for a change of others than the controller: of a parent, a child, a related object or a definition.
	Live Priority = iota
	// Retry is for a sync that failed before and whose backoff has ended.
	Retry
	// SelfTriggered is for a sync whose only cause is what the sync before it wrote: only the hook waits for it.
	SelfTriggered
	// Resync is for syncs without a known change: periodic resyncs and the initial list after a start.
	Resync

	priorities = 4

	// none marks the absence of a priority. It is larger than every priority, so that min works.
	none Priority = priorities
)

// String returns the priority's name in lower case, as used in metrics and logs.
func (p Priority) String() string {
	switch p {
	case Live:
		return "live"
	case Retry:
		return "retry"
	case SelfTriggered:
		return "self_triggered"
	case Resync:
		return "resync"
	default:
		return "none"
	}
}

// known maps values outside of the priorities to Resync, so that a wrong value costs urgency and nothing else.
func (p Priority) known() Priority {
	if p < Live || p > Resync {
		return Resync
	}
	return p
}
