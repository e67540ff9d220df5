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

package hostile

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	// memory is what the server gets in the long form, and collected the size from which on it collects garbage more often.
	memory, collected = 512 << 20, "GOMEMLIMIT=400MiB"
	// samples is how many changes are timed in the long form.
	samples = 200
	// slower is how much slower the healthy controller may be beside hostile hooks.
	slower = 2
)

// limited are the options of the server. With the race detector it needs more memory, so that only the long form has a limit.
func limited() server.Options {
	if !report.Long() {
		return server.Options{}
	}
	return server.Options{Memory: memory, Env: []string{collected}}
}

// latency changes a parent again and again, and returns how long its child took to follow, sorted. In the short form that is not timed.
func (w *work) latency(value string) []time.Duration {
	w.T.Helper()
	if !report.Long() {
		return nil
	}
	const name = "p0"
	events, err := w.Resource(fixture.ConfigMaps).Watch(w.T.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		w.T.Fatal(err)
	}
	defer events.Stop()
	took := make([]time.Duration, samples)
	for i := range took {
		want := fmt.Sprintf("%s %d", value, i)
		began := time.Now()
		w.Patch(fixture.Things, name, `{"spec":{"value":"`+want+`"}}`)
		for followed := false; !followed; {
			select {
			case e := <-events.ResultChan():
				child, ok := e.Object.(*unstructured.Unstructured)
				followed = ok && fixture.Value(child, "data", "value") == want
			case <-time.After(limit):
				w.T.Fatalf("the child did not follow within %s", limit)
			}
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took
}

// compare says how the healthy controller was doing, and fails the test if it was slowed down too much.
func (w *work) compare(figures *report.Figures, alone, beside []time.Duration) {
	w.T.Helper()
	if !report.Long() {
		return
	}
	shown := func(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
	median, tail := samples/2, samples*95/100
	if beside[median] > slower*alone[median] {
		w.T.Errorf("the healthy controller took %s beside hostile hooks, and %s alone", shown(beside[median]), shown(alone[median]))
	}
	figures.Sayf("a child of the healthy controller followed in %s, 95%% in %s, and alone in %s, 95%% in %s (median of %d)",
		shown(beside[median]), shown(beside[tail]), shown(alone[median]), shown(alone[tail]), samples)
	figures.Sayf("at most %d MiB of memory, files in the kernel's cache among them", w.Server.PeakMemory()>>20)
}
