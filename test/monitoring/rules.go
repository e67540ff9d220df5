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

package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.yaml.in/yaml/v3"
)

// An Alert is an alert as it fires.
type Alert struct {
	// Labels has those of the rule and of the series, without the name of the alert.
	Labels map[string]string `yaml:"exp_labels"`
	// Annotations are those of the rule, with their templates filled in.
	Annotations map[string]string `yaml:"exp_annotations"`
}

func newEngine(p parser.Parser) *promql.Engine {
	const samples, timeout = 1 << 20, time.Minute
	return promql.NewEngine(promql.EngineOpts{MaxSamples: samples, Timeout: timeout, EnableAtModifier: true, EnableNegativeOffset: true, Parser: p})
}

// firing evaluates a rule every interval, as Prometheus does, and returns the alerts that fire after a time.
func firing(ctx context.Context, e *promql.Engine, data storage.Queryable, rule rulefmt.Rule, interval, after time.Duration) ([]Alert, error) {
	since := map[string]time.Duration{}
	for now := time.Duration(0); ; now += interval {
		vector, err := ask(ctx, e, data, rule.Expr, now)
		if err != nil {
			return nil, err
		}
		active := map[string]time.Duration{}
		var alerts []Alert
		for _, s := range vector {
			key := s.Metric.String()
			active[key] = now
			if began, ok := since[key]; ok {
				active[key] = began
			}
			if now-active[key] < time.Duration(rule.For) {
				continue
			}
			alert, err := alertOf(ctx, e, data, rule, s, now)
			if err != nil {
				return nil, err
			}
			alerts = append(alerts, alert)
		}
		if since = active; now+interval > after {
			return alerts, nil
		}
	}
}

func ask(ctx context.Context, e *promql.Engine, data storage.Queryable, expression string, at time.Duration) (promql.Vector, error) {
	query, err := e.NewInstantQuery(ctx, data, nil, expression, time.UnixMilli(at.Milliseconds()))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", expression, err)
	}
	defer query.Close()
	vector, err := query.Exec(ctx).Vector()
	if err != nil {
		return nil, fmt.Errorf("evaluating %s: %w", expression, err)
	}
	// The vector is used again when the query is closed.
	return append(promql.Vector(nil), vector...), nil
}

// alertOf fills in the templates of an alert for one element of the result of its rule.
func alertOf(
	ctx context.Context, e *promql.Engine, data storage.Queryable, rule rulefmt.Rule, s promql.Sample, now time.Duration,
) (Alert, error) {
	series := s.Metric.Map()
	delete(series, model.MetricNameLabel)
	shown := template.AlertTemplateData(series, nil, "", s)
	expand := func(texts map[string]string) (map[string]string, error) {
		filled := map[string]string{}
		for name, text := range texts {
			const variables = "{{$labels := .Labels}}{{$value := .Value}}"
			query := func(ctx context.Context, expression string, at time.Time) (promql.Vector, error) {
				return ask(ctx, e, data, expression, time.Duration(at.UnixMilli())*time.Millisecond)
			}
			expander := template.NewTemplateExpander(ctx, variables+text, rule.Alert, shown, model.Time(now.Milliseconds()), query, &url.URL{}, []string{"missingkey=error"})
			result, err := expander.Expand()
			if err != nil || strings.Contains(result, "<no value>") {
				return nil, fmt.Errorf("%s: filling in %s %q gives %q: %w", rule.Alert, name, text, result, err)
			}
			filled[name] = result
		}
		return filled, nil
	}
	ofRule, err := expand(rule.Labels)
	if err != nil {
		return Alert{}, err
	}
	notes, err := expand(rule.Annotations)
	if err != nil {
		return Alert{}, err
	}
	all := maps.Clone(series)
	maps.Copy(all, ofRule)
	return Alert{Labels: all, Annotations: notes}, nil
}

// memory is a storage of Prometheus with the series of one test.
type memory struct {
	storage.LabelQuerier

	series []storage.Series
}

// load adds a series with a sample at each interval from the time 0 on, in the notation of promtool.
func (m *memory) load(series labels.Labels, values []parser.SequenceValue, interval time.Duration) {
	var samples []chunks.Sample
	for i, v := range values {
		if !v.Omitted {
			samples = append(samples, sample{at: int64(i) * interval.Milliseconds(), value: v.Value})
		}
	}
	m.series = append(m.series, storage.NewListSeries(series, samples))
}

// Querier implements storage.Queryable.
func (m *memory) Querier(_, _ int64) (storage.Querier, error) { return m, nil }

// Close implements storage.Querier.
func (m *memory) Close() error { return nil }

// Select implements storage.Querier.
func (m *memory) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, s := range m.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return &selected{series: found}
}

// selected are the series of one selector.
type selected struct {
	series []storage.Series
	next   int
}

func (s *selected) Next() bool {
	s.next++
	return s.next <= len(s.series)
}

func (s *selected) At() storage.Series { return s.series[s.next-1] }

func (s *selected) Err() error { return nil }

func (s *selected) Warnings() annotations.Annotations { return nil }

// sample is a value at a time in milliseconds.
type sample struct {
	at    int64
	value float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// Where things are, from this folder.
const (
	artifacts = "../../artifacts/monitoring"
	runbooks  = "../../docs/operations/alerts.md"
	listFile  = "metrics.json"
)

// read reads a file of artifacts/monitoring.
func read(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(artifacts, name))
	if err != nil {
		return nil, fmt.Errorf("reading what is checked: %w", err)
	}
	return text, nil
}

// strictYAML reads YAML in which no field may be that the type does not have.
func strictYAML(text []byte, into any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("reading YAML: %w", err)
	}
	return nil
}

// A Use is what alerts and dashboard use of one metric.
type Use struct {
	// Job is who serves the metric.
	Job string `json:"job"`
	// Labels has the labels by which its series are selected or grouped, with the values that they are compared with, if any.
	Labels map[string][]string `json:"labels,omitempty"`
}

// uses adds what an expression uses to all.
func uses(p parser.Parser, expression string, all map[string]*Use) error {
	parsed, err := p.ParseExpr(expression)
	if err != nil {
		return fmt.Errorf("%s: %w", expression, err)
	}
	parser.Inspect(parsed, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		use, known := all[selector.Name]
		if !known {
			use = &Use{Labels: map[string][]string{}}
			all[selector.Name] = use
		}
		for _, m := range selector.LabelMatchers {
			use.compare(m)
		}
		for _, outer := range path {
			if aggregation, ok := outer.(*parser.AggregateExpr); ok && !aggregation.Without {
				for _, name := range aggregation.Grouping {
					use.add(name)
				}
			}
		}
		return nil
	})
	return nil
}

func (u *Use) compare(m *labels.Matcher) {
	switch {
	case m.Name == model.MetricNameLabel:
	case m.Name == "job":
		u.Job = m.Value
	case m.Type == labels.MatchEqual && !strings.Contains(m.Value, "$"):
		u.add(m.Name, m.Value)
	default:
		u.add(m.Name)
	}
}

func (u *Use) add(name string, values ...string) {
	if name == "instance" {
		return // Prometheus adds it, as it adds job.
	}
	all := slices.Concat(u.Labels[name], values)
	slices.Sort(all)
	u.Labels[name] = append([]string{}, slices.Compact(all)...)
}

// dashboard is what is read of dashboard.json.
type dashboard struct {
	UID    string  `json:"uid"`
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`

	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query any    `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	} `json:"gridPos"`
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
		RefID        string `json:"refId"`
	} `json:"targets"`
}

func readDashboard() (dashboard, error) {
	var d dashboard
	text, err := read("dashboard.json")
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("reading dashboard.json: %w", err)
	}
	return d, nil
}
