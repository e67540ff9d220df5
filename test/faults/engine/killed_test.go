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

package engine

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/fleet"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// TestServerKilled kills the server while parents are created, rolled out and finalized, in turns.
func TestServerKilled(t *testing.T) {
	figures := report.For(t, report.ServerKilled)
	kills, parents := report.Pick(3, 20), report.Pick(60, 500)
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{
		// Requests to the cluster are broken off when those end that need them.
		Tolerate: []string{"Failed to make webhook authorizer request"},
	}})
	f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 2, Method: v1alpha1.ChildUpdateRollingInPlace, Finalize: true})
	names := f.Names()
	var slowest time.Duration
	for kill := range kills {
		var do func()
		var during string
		affected := names
		switch kill % 3 {
		case 0:
			during, do = "creations", func() { f.Create("created") }
			if kill > 0 {
				affected = names[:parents/2]
			}
		case 1:
			during, do = "rollouts", func() { f.Change("value "+strconv.Itoa(kill), names...) }
		case 2:
			affected = names[:parents/2]
			during, do = "finalizations", func() { f.Delete(affected...) }
		}
		// Each of these needs one call of the hook at least.
		at := f.Hook.Calls() + 1 + rand.IntN(len(affected))
		killed := killAt(t, f, at)
		do()
		<-killed
		f.Remember()
		restarted := time.Now()
		e.Server.Restart()
		f.Converge("a kill during " + during)
		took := time.Since(restarted)
		t.Logf("kill %d, during %s, at call %d of the hook: converged %s after the start", kill+1, during, at, seconds(took))
		slowest = max(slowest, took)
	}
	figures.Sayf("%d kills, %d parents with 2 children each", kills, parents)
	figures.Sayf("nothing lost, left over or made again")
	figures.Sayf("converged %s after the start at the latest", seconds(slowest))
	// Those that are there are finalized, and nothing is left.
	f.Delete(slices.DeleteFunc(names, func(name string) bool { return (kills-1)%3 == 2 && slices.Contains(names[:parents/2], name) })...)
	f.Converge("all were deleted")
}

// killAt kills the server when its hook has been called so often, while the caller does something else.
func killAt(t *testing.T, f *fleet.Fleet, calls int) <-chan struct{} {
	t.Helper()
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for until := time.Now().Add(f.Limit); f.Hook.Calls() < calls; {
			if time.Now().After(until) {
				t.Errorf("the hook was called %d times in %s, want %d", f.Hook.Calls(), f.Limit, calls)
				break
			}
			select {
			case <-ticker.C:
			case <-t.Context().Done():
				return // What was to be done meanwhile has failed.
			}
		}
		f.Server.Kill()
	}()
	return killed
}
