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

import "time"

// keyLook is what a queue knows of one key. The zero value says that it knows nothing.
type keyLook struct {
	// Queued says that the key is in the queue, or will be when the worker that has it is done; Processing that a worker has it; Held that
	// a worker had it and that something will release it.
	Queued, Processing, Held bool
	// Due is when the key is queued if nothing adds it before; zero for no such time.
	Due time.Time
	// Failures is how many times in a row the key has failed, and Err the error of its last sync, nil if that succeeded.
	Failures int
	Err      error
}

// Look returns what the queue knows of a key.
func (q *Queue[K]) Look(key K) keyLook {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.items[key]
	if !ok {
		return keyLook{}
	}
	look := keyLook{
		Queued: i.queued != none || i.again != none, Processing: i.processing, Held: i.held != none && i.queued == none,
		Failures: int(i.failures), Err: i.err,
	}
	if due := i.due(); due != unset {
		look.Due = q.start.Add(due)
	}
	return look
}
