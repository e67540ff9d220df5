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

package apply_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
)

func TestTurnsOfAllControllersAreSpreadOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := apply.New(apply.Options{})
		began := time.Now()
		var mu sync.Mutex
		turns := map[time.Time]int{}
		var running sync.WaitGroup
		for _, controller := range []string{"a", "b"} {
			own := shared.For(controller, false).With(nil)
			running.Go(func() {
				for range 100 {
					if err := own.AwaitTurn(t.Context()); err != nil {
						t.Error(err)
					}
					mu.Lock()
					turns[time.Now()]++
					mu.Unlock()
				}
			})
		}
		running.Wait()
		if took := time.Since(began); took < 10*time.Second || took > 15*time.Second || len(turns) != 200 {
			t.Errorf("200 turns at %d times within %v", len(turns), took)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if shared.AwaitTurn(ended) == nil {
			t.Error("a turn of somebody who does not wait any more")
		}
	})
}
