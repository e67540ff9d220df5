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
	"math/rand/v2"
	"time"
)

// Defaults of Options.
const (
	defaultBaseDelay = 5 * time.Millisecond
	defaultMaxDelay  = 5 * time.Minute
	defaultJitter    = 0.2
)

// backoff computes the delay after a number of consecutive failures.
type backoff struct {
	base, limit time.Duration
	jitter      float64
	random      func() float64
}

func newBackoff(o Options) backoff {
	b := backoff{base: o.BaseDelay, limit: min(o.MaxDelay, MaxDelay), jitter: o.Jitter, random: o.Random}
	if b.base <= 0 {
		b.base = defaultBaseDelay
	}
	if b.limit <= 0 {
		b.limit = defaultMaxDelay
	}
	switch {
	case b.jitter == 0:
		b.jitter = defaultJitter
	case b.jitter < 0:
		b.jitter = 0
	case b.jitter > 1:
		b.jitter = 1
	}
	if b.random == nil {
		b.random = rand.Float64
	}
	return b
}

// delay returns the delay after the given number of consecutive failures, which is at least 1.
func (b backoff) delay(failures uint32) time.Duration {
	d := b.base
	for n := uint32(1); n < failures && d < b.limit; n++ {
		d *= 2
	}
	d = min(d, b.limit)
	return d - time.Duration(b.jitter*b.random()*float64(d))
}
