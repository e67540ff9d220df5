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

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/subject"
)

func TestParseSizes(t *testing.T) {
	got, err := parseSizes("300x3,100x50")
	if want := []size{{300, 3}, {100, 50}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"300", "x3", "0x3", "3x0", "3x3,", "axb"} {
		if got, err := parseSizes(bad); err == nil {
			t.Errorf("%q: got %v and no error", bad, got)
		}
	}
}

func TestParseWorkloads(t *testing.T) {
	if got, err := parseWorkloads("create,single"); err != nil || len(got) != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parseWorkloads("crate"); err == nil {
		t.Errorf("got %v and no error for a workload that is none", got)
	}
}

func TestSelected(t *testing.T) {
	for _, c := range []struct {
		workloads []string
		name      string
		want      bool
	}{
		{nil, "create", true},
		{[]string{"steady"}, "create", false},
		{[]string{"decorator"}, "decorator-change", true},
		{[]string{"controllers"}, "50-controllers", true},
		{[]string{"delete"}, "finalize", false},
	} {
		if got := (plan{workloads: c.workloads}).selected(c.name); got != c.want {
			t.Errorf("%s of %v: got %t, want %t", c.name, c.workloads, got, c.want)
		}
	}
}

func TestReadsAreAttributedUpToTheServersOwnCount(t *testing.T) {
	requests := map[string]int64{"GET things": 40, "LIST configmaps": 1, "PUT configmaps": 9}
	attribute(requests, 3)
	if requests["GET things"] != 2 || requests["LIST configmaps"] != 1 || requests["PUT configmaps"] != 9 {
		t.Errorf("got %v, want the list, 2 of the other reads, since the server made 3 in all, and all writes", requests)
	}
}

func TestWaitsTellOnlyOfWhatIsExpected(t *testing.T) {
	var w waits
	w.expect(1)
	w.note("p0", "2", 3)
	w.is("p0", "1", 3)
	w.is("p0", "2", 2)
	w.is("p1", "2", 3)
	if got := w.times(); len(got) != 0 {
		t.Fatalf("got %v before p0 has become what is wanted", got)
	}
	w.is("p0", "2", 3)
	w.is("p0", "2", 3)
	if err := w.await(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := w.times(); len(got) != 1 {
		t.Errorf("got %v, want one time", got)
	}
}

func TestStepsAreTheSelectedOnes(t *testing.T) {
	names := func(p plan) (names []string) {
		for _, s := range p.steps() {
			names = append(names, s.name)
		}
		return names
	}
	p := plan{sizes: []size{{300, 3}, {100, 50}}, workloads: []string{"create", "finalize", "rolling"}}
	if got, want := names(p), []string{"300×3", "100×50", "rolling", "finalize"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	p.quick = true
	if got, want := names(p), []string{"rolling", "300×3", "100×50", "finalize"}; !slices.Equal(got, want) {
		t.Errorf("quick: got %v, want %v: the garbage collector gets to know the kind meanwhile", got, want)
	}
	if got := names(plan{sizes: p.sizes, workloads: []string{"delete"}}); !slices.Equal(got, []string{"delete"}) {
		t.Errorf("got %v, want no size without a workload that is measured on it", got)
	}
}

func TestTurnsAlternate(t *testing.T) {
	var got, ended []string
	turn := func(lane int, s step, last bool) error {
		got = append(got, fmt.Sprint(s.name, lane))
		if last {
			ended = append(ended, fmt.Sprint(s.name, lane))
		}
		return nil
	}
	if err := alternate(2, []step{{name: "a"}, {name: "b"}}, 2, turn); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a0", "a1", "b1", "b0", "a1", "a0", "b0", "b1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: each lane with each step in each run, and not always the same first", got, want)
	}
	if want := []string{"b0", "b1"}; !slices.Equal(ended, want) {
		t.Errorf("the last ones are %v, want %v", ended, want)
	}
}

func TestAPeerThatFailsIsNotTheEnd(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		peer *subject.PeerOptions
		want int
	}{
		{"Server", nil, 1},
		{"Peer", &subject.PeerOptions{Binary: "metacontroller"}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			turns := 0
			steps := slices.Repeat([]step{{"a", func(*bench, context.Context) error { turns++; return broken }}}, 3)
			l := &lane{options: options{peer: c.peer, plan: plan{quick: true}}, alone: true, start: func(context.Context, options) (*bench, error) {
				return &bench{folder: t.TempDir()}, nil
			}}
			if err := inTurns(t.Context(), 1, steps, []*lane{l}); !errors.Is(err, broken) {
				t.Errorf("got %v, want it to tell of the failure", err)
			}
			if turns != c.want {
				t.Errorf("got %d turns, want %d", turns, c.want)
			}
		})
	}
}

func TestBareWritesAreLeftOutWhereTold(t *testing.T) {
	for without, want := range map[bool]int{false: 2, true: 0} {
		var bare int
		var kept []report.Result
		b := &bench{options: options{plan: plan{withoutLimit: without}, keep: func(r report.Result) error {
			kept = append(kept, r)
			return nil
		}}}
		err := b.beside(t.Context(), func(context.Context) (limits, error) {
			bare++
			return limits{workCreate: report.TimesOf(2, nil, nil)}, nil
		}, func(context.Context) ([]report.Result, error) {
			return []report.Result{{Workload: workCreate, Seconds: 3}}, nil
		})
		if err != nil || bare != want || len(kept) != 1 || kept[0].Seconds != 3 || (kept[0].Limit == 0) != without {
			t.Errorf("without limit %t: got %d times bare writes and %+v, %v; want %d times, and the result", without, bare, kept, err, want)
		}
	}
}
