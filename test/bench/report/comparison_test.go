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

package report

import (
	"strings"
	"testing"
)

func TestComparison(t *testing.T) {
	create := func(ratio float64) Result { return Result{Workload: "create", Parents: 300, Children: 3, Ratio: ratio} }
	base := []Result{create(2), create(1.5), create(1), {Workload: "update", Parents: 300, Children: 3, Ratio: 1}}
	got := Comparison(base, []Result{create(3), {Workload: "create", Parents: 3000, Children: 3, Ratio: 1}})
	want := "| create | 300×3 | time ÷ limit | 1.50 (1.00 to 2.00, 3 runs) | 3.00 (3.00 to 3.00, 1 runs) | +100 % |"
	if !strings.Contains(got, want) {
		t.Errorf("got\n%swithout\n%s", got, want)
	}
	for _, missing := range []string{"update", "3000×3", "seconds"} {
		if strings.Contains(got, missing) {
			t.Errorf("%s was not measured of both, but is compared:\n%s", missing, got)
		}
	}
}

func TestProcessorTimeOfVersionsIsComparedByTheAPIServers(t *testing.T) {
	create := func(name string, cpu, apiServer float64) Result {
		return Result{Measured: name, Workload: "create", Parents: 300, Children: 3, CPU: cpu, APIServerCPU: apiServer}
	}
	got := Comparison([]Result{create(Server, 1, 8)}, []Result{create(Server, 2, 20)})
	want := "| create | 300×3 | CPU ÷ the API server's | 0.125 (0.125 to 0.125, 1 runs) | 0.100 (0.100 to 0.100, 1 runs) | -20 % |"
	if !strings.Contains(got, want) {
		t.Errorf("got\n%swithout\n%s", got, want)
	}
	if got := Peers([]Result{create(Server, 1, 8), create("metacontroller", 4, 40)}); strings.Contains(got, "CPU ÷") || !strings.Contains(got, "| the API server's CPU s | 8 | 40 | 5.00 |") {
		t.Errorf("a peer that makes the API server work more looks better by it:\n%s", got)
	}
}

func TestVersionsAreComparedWithoutTheirPeers(t *testing.T) {
	got := Comparison([]Result{{Workload: "create", Seconds: 1}}, []Result{{Workload: "create", Seconds: 1, Measured: "metacontroller"}})
	if strings.Contains(got, "create") {
		t.Errorf("a version is compared with a peer:\n%s", got)
	}
}

func TestPeers(t *testing.T) {
	server := Result{Measured: Server, Workload: "create", Parents: 300, Children: 3, Seconds: 2, PerThousand: 2, Mallocs: 100}
	peer := Result{Measured: "metacontroller", Workload: "create", Parents: 300, Children: 3, Seconds: 5, PerThousand: 5}
	tuned := Result{Measured: "metacontroller --workers=20", Workload: "create", Parents: 300, Children: 3, Seconds: 3, PerThousand: 6}
	got := Peers([]Result{server, peer, tuned, peer, {Workload: "update", Parents: 300, Children: 3, Seconds: 1}})
	for _, want := range []string{
		"| workload | parents × children | measure | metacontroller-apiserver | metacontroller | ÷ the server's | metacontroller --workers=20 | ÷ the server's |\n" +
			"|---|---|---|---|---|---|---|---|\n",
		"| create | 300×3 | seconds | 2.00 | 5.00 | 2.50 | 3.00 | 1.50 |\n",
		"| create | 300×3 | CPU s per 1,000 parents | 2.00 | 5.00 | 2.50 | 6.00 | 3.00 |\n",
		"| create | 300×3 | allocations per parent | 100 |  |  |  |  |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
	for _, missing := range []string{"update", "p50 ms"} {
		if strings.Contains(got, missing) {
			t.Errorf("%s was not measured of a peer, but is shown:\n%s", missing, got)
		}
	}
	if got := Peers([]Result{server}); got != "" {
		t.Errorf("got %q without a peer, want nothing", got)
	}
}
