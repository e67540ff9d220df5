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
	"path/filepath"
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

func TestMedian(t *testing.T) {
	seconds := func(r Result) float64 { return r.Seconds }
	for want, values := range map[float64][]float64{0: {}, 3: {3}, 2: {1, 3}, 5: {9, 5, 1}} {
		results := make([]Result, len(values))
		for i, v := range values {
			results[i].Seconds = v
		}
		if got := Median(results, seconds); got != want {
			t.Errorf("median of %v: got %v, want %v", values, got, want)
		}
	}
}

func TestReadsAndWrites(t *testing.T) {
	r := Result{Requests: map[string]int64{"GET things": 2, "LIST configmaps": 1, "GET pods": 5, "PATCH things/status": 3, "DELETE pods": 4}}
	if got := r.Reads("things", "configmaps"); got != 3 {
		t.Errorf("got %d reads, want 3", got)
	}
	if got := r.Writes(); got != 7 {
		t.Errorf("got %d writes, want 7", got)
	}
	if got := r.StatusWrites(); got != 3 {
		t.Errorf("got %d writes of statuses, want 3", got)
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

func TestTableHasMediansOfTheRuns(t *testing.T) {
	unasked := int64(0)
	table := Table([]Result{
		{Workload: "create", Parents: 300, Children: 3, Seconds: 1, Limit: 1, Ratio: 1.5, Requests: map[string]int64{"POST configmaps": 900}},
		{Workload: "steady", Parents: 300, Children: 3, UnaskedWrites: &unasked},
		{Workload: "create", Parents: 300, Children: 3, Seconds: 3, Limit: 1, Ratio: 1.7, Requests: map[string]int64{"POST configmaps": 900}},
	})
	for _, want := range []string{
		"| create | 300×3 | 2 | 2.00 | 1.00 | 1.60 |", "| create | 300×3 | 2 | 0 | 900 | 0 | 0 | 0 |  | 0 |", "| steady | 300×3 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	for line := range strings.SplitSeq(table, "\n") {
		if line != "" && (!strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|")) {
			t.Errorf("%q is no line of a table", line)
		}
	}
}

func TestTableHasTheLimitsObjectsBesideOurs(t *testing.T) {
	table := Table([]Result{
		Result{Workload: "create", Parents: 300, Children: 3, Seconds: 2, P50: 70, P99: 80, StartP50: 900, StartP99: 1900}.
			Against(Times{Seconds: 1, P50: 5, P99: 6, StartP50: 500, StartP99: 990}),
		{Workload: "single", Parents: 300, Children: 3, Seconds: 2, P50: 7, P99: 8, StartP50: 7, WriteP50: 3, WriteP99: 4},
		{Measured: "metacontroller", Workload: "update", Parents: 300, Children: 3, Seconds: 2},
	})
	for _, want := range []string{
		"| create | 300×3 | 1 | 2.00 | 1.00 | 2.00 | 0.90 | 0.50 | 1.90 | 0.99 | 70.0 | 80.0 | 5.0 | 6.0 |",
		"| single | 300×3 | 1 | 2.00 |  |  |  |  |  |  | 7.0 | 8.0 | 3.0 | 4.0 |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if strings.Contains(table, "update") {
		t.Errorf("the table of the server has a peer's result:\n%s", table)
	}
}

func TestTargetsOfWhatWasNotMeasuredAreNotReached(t *testing.T) {
	table := Targets([]Result{{Workload: "create", Parents: 3000, Children: 3, Ratio: 1.2}})
	want := "| create, median parent from the start ÷ the limit's | 3000×3 |  | ≤ 1.6 | not measured | |"
	if !strings.Contains(table, want) {
		t.Errorf("the targets lack %q:\n%s", want, table)
	}
}

func TestTargetsHaveThePeersFigures(t *testing.T) {
	table := Targets([]Result{
		{Workload: "create", Parents: 3000, Children: 3, Ratio: 1.2, Measured: Server},
		{Workload: "create", Parents: 3000, Children: 3, Ratio: 2.5, Measured: "metacontroller"},
		{Workload: "rolling", Parents: 300, Children: 3, Ratio: 3, Measured: "metacontroller --workers=20"},
	})
	for _, want := range []string{
		"| what | size | metacontroller | metacontroller --workers=20 | target | measured | reached |\n|---|---|---|---|---|---|---|\n",
		"| create, time to converge ÷ limit | 3000×3 | 2.50 |  | ≤ 1.35 | 1.20 | yes |",
		"| create, time to converge ÷ limit | 10000×3 |  |  | ≤ 1.3 | not measured | |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the targets lack %q:\n%s", want, table)
		}
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

func TestResultsAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	if got, err := Read(file); err != nil || len(got) != 0 {
		t.Errorf("before the first: got %v, %v", got, err)
	}
	for _, workload := range []string{"create", "steady"} {
		if err := Append(file, Result{Workload: workload}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(file)
	if err != nil || len(got) != 2 || got[1].Workload != "steady" {
		t.Errorf("got %v, %v, want both in their order", got, err)
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
