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
	"context"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
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
