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
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// Look is how a pool is doing with one key.
type Look struct {
	// Queued says that the key is to be synced now, Syncing that it is being synced, and Held that Ready has held it back.
	Queued, Syncing, Held bool
	// Next is when the key is synced if nothing happens before; zero for no such time.
	Next time.Time
	// Retries is how many syncs have failed in a row.
	Retries int
	// Err is the error of the last sync, nil if that succeeded. Waits says that nothing has failed: the sync has to wait, or a hook asked to
	// be called later.
	Err   error
	Waits bool
}

// Look returns how the pool is doing with a key.
func (p *Pool) Look(key parent.Key) Look {
	q := p.queue.Look(key)
	look := Look{Queued: q.Queued, Syncing: q.Processing && !q.Held, Held: q.Held, Next: q.Due, Retries: q.Failures}
	if f, ok := q.Err.(*failure); ok { //nolint:errorlint // As it was given to the queue.
		look.Err, look.Waits = f.error, f.result != metrics.Failed
	}
	return look
}
