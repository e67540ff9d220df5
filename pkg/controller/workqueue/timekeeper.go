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

import (
	"time"

	"k8s.io/utils/clock"
)

// keepTime queues delayed items when they are due, until stop is closed. One timer, set to the earliest due time, serves them all.
func (q *Queue[K]) keepTime(stop <-chan struct{}) {
	var timer clock.Timer
	for {
		next := q.release()
		var fired <-chan time.Time
		if next != unset {
			wait := next - q.now()
			if timer == nil {
				timer = q.clock.NewTimer(wait)
			} else {
				timer.Reset(wait)
			}
			fired = timer.C()
			// The clock may have moved before the timer was set. A clock that is moved by hand would not fire then.
			if q.now() >= next {
				halt(timer)
				continue
			}
		}
		select {
		case <-fired:
		case <-q.rearm:
			halt(timer)
		case <-stop:
			halt(timer)
			return
		}
	}
}

// halt stops the timer and makes sure that its channel is empty.
func halt(timer clock.Timer) {
	if timer == nil || timer.Stop() {
		return
	}
	select {
	case <-timer.C():
	default:
	}
}

// release queues what is due and returns the next due time; unset when there is none.
func (q *Queue[K]) release() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for len(q.delays) > 0 {
		i := q.delays[0]
		if i.due() > now {
			return i.due()
		}
		p := none
		if i.retryAt != unset && i.retryAt <= now {
			p, i.retryAt = i.retryPriority, unset
		}
		if i.resyncAt != unset && i.resyncAt <= now {
			p, i.resyncAt = min(p, i.resyncPriority), unset
		}
		q.schedule(i)
		q.add(i, p)
	}
	return unset
}
