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

package pairs

import (
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// burstChanges is how many changes each of the four combinations of kinds gets: one burst, and five with `make pairs`.
var burstChanges = flag.Int("pairs.changes", 100, "changes of parents for each combination of two controllers")

const (
	// burstParents are changed at the same time, each burstLength times in a row.
	burstParents, burstLength = 20, 5
	// burstPadding makes children large enough for events of a child to come after those of a parent.
	burstPadding = 32 << 10
)

// noChangeIsMissed changes parents quickly, in bursts. After each burst, both controllers must have seen the last generation
// of every parent soon.
func noChangeIsMissed(t *testing.T, e *fixture.Environment) {
	for _, c := range combinations {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, e, c.first, c.second, burstPadding)
			for i := range burstParents {
				p.parent(parentName(i))
			}
			start, made, missed := time.Now(), 0, 0
			var slowest time.Duration
			for burst := 0; made < *burstChanges; burst++ {
				last := p.burst(burst)
				made += burstParents * burstLength
				late, took := p.behind(last)
				missed += late
				slowest = max(slowest, took)
			}
			t.Logf("%d changes of %d parents in %v: %d missed; the slowest burst was seen by both %v after its end; calls: %d and %d",
				made, burstParents, time.Since(start).Round(time.Millisecond), missed, slowest.Round(time.Millisecond),
				p.first.script.All(), p.second.script.All())
			if missed > 0 {
				t.Errorf("%d of %d last changes of a burst were not seen within %v", missed, 2*made/burstLength, soon)
			}
		})
	}
}

func parentName(i int) string { return fmt.Sprintf("p%02d", i) }

// burst changes all parents at the same time, each several times in a row, and returns their last generations.
func (p *pair) burst(burst int) map[string]int64 {
	p.T.Helper()
	var (
		mu      sync.Mutex
		last    = map[string]int64{}
		writing sync.WaitGroup
	)
	for i := range burstParents {
		writing.Go(func() {
			for n := range burstLength {
				patch := fmt.Appendf(nil, `{"spec":{"n":"%d-%d"}}`, burst, n)
				written, err := p.Resource(fixture.Things).Patch(p.T.Context(), parentName(i), types.MergePatchType, patch, metav1.PatchOptions{})
				if err != nil {
					p.T.Errorf("changing a parent: %v", err)
					return
				}
				mu.Lock()
				last[parentName(i)] = written.GetGeneration()
				mu.Unlock()
			}
		})
	}
	writing.Wait()
	return last
}

// behind waits until both controllers have seen generations of parents. It returns how many they have not seen soon, and how long
// it took.
func (p *pair) behind(generations map[string]int64) (int, time.Duration) {
	start := time.Now()
	for {
		missed := 0
		for name, generation := range generations {
			for _, m := range p.members() {
				if m.generation(name) < generation {
					missed++
				}
			}
		}
		if took := time.Since(start); missed == 0 || took > soon {
			return missed, took
		}
		select {
		case <-p.T.Context().Done():
			return missed, time.Since(start)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
