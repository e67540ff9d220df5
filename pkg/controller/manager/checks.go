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

package manager

import "time"

const (
	// checkInterval is how often the health of an instance is read that did something within activeTime, and how long after it did
	// something at the latest. activeTime is longer than it takes until a failure that lasts counts as one.
	checkInterval, activeTime = 500 * time.Millisecond, 3 * time.Second
	// idleInterval is how often it is read otherwise: some of it changes with time alone. soundInterval is how often that of an instance is
	// read of which nothing does.
	idleInterval, soundInterval = 5 * time.Second, 30 * time.Second
)

// checks says when the health of an instance is read next.
type checks struct {
	timer *time.Timer
	// due is when the timer fires, and until the end of the time in which the instance counts as active.
	due, until time.Time
}

func newChecks() *checks {
	now := time.Now()
	return &checks{timer: time.NewTimer(checkInterval), due: now.Add(checkInterval), until: now.Add(activeTime)}
}

// active takes note that something happened.
func (c *checks) active() {
	now := time.Now()
	c.until = now.Add(activeTime)
	if c.due.Sub(now) > checkInterval {
		c.reset(now, checkInterval)
	}
}

// next is called after a check. An instance that is starting is active, and one that is sound does not change with time alone.
func (c *checks) next(starting, sound bool) {
	now := time.Now()
	switch {
	case starting || now.Before(c.until):
		c.reset(now, checkInterval)
	case sound:
		c.reset(now, soundInterval)
	default:
		c.reset(now, idleInterval)
	}
}

func (c *checks) reset(now time.Time, after time.Duration) {
	c.due = now.Add(after)
	c.timer.Reset(after)
}
