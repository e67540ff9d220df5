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

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, c := range []struct {
		name   string
		values []float64
		p      float64
		want   float64
	}{
		{"None", nil, 0.99, 0},
		{"One", []float64{7}, 0.5, 7},
		{"Half", hundred, 0.5, 50},
		{"NotTheGreatest", hundred, 0.99, 99},
		{"Greatest", hundred, 1, 100},
		{"Least", hundred, 0, 1},
	} {
		if got := Percentile(c.values, c.p); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("the caller's values were sorted")
	}
}

func TestAResultIsComparedWithTheMeanOfItsLimits(t *testing.T) {
	r := Result{Seconds: 6, StartP50: 30}.Against(Times{Seconds: 3, P50: 1, P99: 2, StartP50: 10, StartP99: 20}, Times{Seconds: 5, P50: 3, P99: 6, StartP50: 30, StartP99: 40})
	if r.Limit != 4 || r.Ratio != 1.5 || len(r.Limits) != 2 {
		t.Errorf("got limit %v of %v and ratio %v, want 4 and 1.5", r.Limit, r.Limits, r.Ratio)
	}
	if r.LimitP50 != 2 || r.LimitP99 != 4 || r.LimitStartP50 != 20 || r.LimitStartP99 != 30 || r.StartRatio() != 1.5 {
		t.Errorf("got the means 2, 4, 20, 30 and the ratio 1.5 not all in %+v", r)
	}
	if got := (Result{StartP50: 30}).StartRatio(); got != 0 {
		t.Errorf("got %v without a limit, want 0", got)
	}
}

func TestPartsAreAWhole(t *testing.T) {
	part := func(seconds, limit, start float64, writes int64) Result {
		return Result{
			Workload: "create", Parents: 10, Children: 3, Seconds: seconds, StartP50: start, CallsPerParent: seconds, CPU: 1,
			Requests: map[string]int64{"POST configmaps": writes},
		}.Against(Times{Seconds: limit})
	}
	r := Whole([]Result{part(4, 2, 10, 1), part(2, 1, 30, 2), part(6, 9, 20, 3)})
	if r.Parents != 30 || r.Seconds != 12 || r.Limit != 12 || r.Ratio != 1 || len(r.Limits) != 3 || r.CPU != 3 || r.Requests["POST configmaps"] != 6 {
		t.Errorf("got %+v, want sums of three parts", r)
	}
	if r.StartP50 != 20 || r.CallsPerParent != 4 {
		t.Errorf("got the median %v and the mean %v, want 20 and 4", r.StartP50, r.CallsPerParent)
	}
}

func TestTargetsShowTheTrueFigure(t *testing.T) {
	table := Targets([]Result{
		{Workload: "create", Parents: 300, Children: 3, Ratio: 1.4},
		{Workload: "update", Parents: 3000, Children: 3, Ratio: 1.3},
		{Workload: "single", Parents: 10000, Children: 3, P99: 30, WriteP99: 10},
	})
	for _, want := range []string{
		"| create, time to converge ÷ limit | 300×3 | 1.6 | ≤ 1.4 | 1.40 | yes |",
		"| update in place ÷ limit | 3000×3 | 1.6 | ≤ 1.25 | 1.30 | **no** |",
		"| create, time to converge ÷ limit | 3000×3 | 3.9 | ≤ 1.35 | not measured | |",
		"| not measured | ≤ 50 | 20.00 | yes |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the targets lack %q:\n%s", want, table)
		}
	}
}

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
