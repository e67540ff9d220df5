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

package kinds

import "sync"

// memo remembers results by key, for all servers of the process. It holds no channel, since servers live in bubbles of testing/synctest.
type memo[T any] struct{ known sync.Map }

// get returns what compute returned for a key when it was called first. Two callers at once may both call it.
func (m *memo[T]) get(key string, compute func() T) T {
	if known, ok := m.known.Load(key); ok {
		return known.(T) //nolint:forcetypeassert // Nothing else is stored.
	}
	computed, _ := m.known.LoadOrStore(key, compute())
	return computed.(T) //nolint:forcetypeassert // The same.
}
