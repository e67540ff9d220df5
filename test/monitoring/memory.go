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
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

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
