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
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

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
