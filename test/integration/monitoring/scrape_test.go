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

// Package monitoring looks in a scrape of the real server, and in one of the kube-apiserver, for the metrics that the alerts and the
// dashboard of artifacts/monitoring use. The list of these, with their labels, is test/monitoring/metrics.json, which the tests of that
// module keep up to date.
package monitoring

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// A use is what alerts and dashboard use of one metric.
type use struct {
	// Job is who serves it.
	Job string `json:"job"`
	// Labels has the labels that are named, with the values that they are compared with.
	Labels map[string][]string `json:"labels"`
}

func TestMetricsOfAlertsAndDashboardExist(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	s := e.NewTest(t)
	converge(s)
	pages := map[string]server.Page{}
	text, err := s.Server.Read(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	pages["metacontroller-apiserver"] = parse(t, text)
	pages["kube-apiserver"] = parse(t, s.Kubectl(t, "get", "--raw", "/metrics"))
	declared := map[string]metrics.Family{}
	for _, family := range metrics.Families() {
		declared[family.Name] = family
	}

	checked := 0
	for name, wanted := range read(t) {
		if wanted.Job == "prometheus" {
			continue
		}
		checked++
		family := find(pages[wanted.Job], name)
		if len(family.GetMetric()) == 0 {
			t.Errorf("%s does not serve %s", wanted.Job, name)
			continue
		}
		for label, values := range wanted.Labels {
			if label == "le" && family.GetType() == dto.MetricType_HISTOGRAM {
				continue
			}
			there, ok := valuesOf(family, label)
			if !ok {
				t.Errorf("%s has no label %s in %s", name, label, wanted.Job)
			}
			there = append(there, declared[name].Values[label]...)
			for _, value := range values {
				// No server here answers with every status code; a code is one where others are.
				if !slices.Contains(there, value) && (!isStatusCode(value) || !slices.ContainsFunc(there, isStatusCode)) {
					t.Errorf("%s has no value %q of the label %s, only %q", name, value, label, there)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d metrics were looked for", checked)
	}
}

func isStatusCode(value string) bool {
	code, err := strconv.Atoi(value)
	return err == nil && http.StatusText(code) != ""
}

// converge has a controller create a child and meet an object that it may not take, so that there are syncs of all kinds.
func converge(s *fixture.Test) {
	s.T.Helper()
	s.Handle("/sync", hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Children: []*hook.Object{fixture.ConfigMap(q.Parent.GetName(), map[string]any{"value": "1"})}}, nil
	}))
	s.Run(fixture.Definition{
		Kind: fixture.Composite, Sync: s.At("/sync"),
		Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
	})
	s.Create(fixture.ConfigMaps, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "taken"},
	}})
	s.Parent("web", nil)
	s.Parent("taken", nil)
	s.Await(fixture.ConfigMaps, "web", "to be created", cluster.Exists)
	s.AwaitEvent("taken", "Warning", "SyncError", "taken")
}

// read reads the list.
func read(t *testing.T) map[string]use {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cluster.Root(), "test", "monitoring", "metrics.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list map[string]use
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatalf("reading metrics.json: %v", err)
	}
	return list
}

func parse(t *testing.T, text string) server.Page {
	t.Helper()
	page, err := server.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// find returns the family of a metric, which for histograms has another name than their series.
func find(p server.Page, name string) *dto.MetricFamily {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if family, ok := p[strings.TrimSuffix(name, suffix)]; ok && family.GetType() == dto.MetricType_HISTOGRAM {
			return family
		}
	}
	return p[name]
}

// valuesOf returns the values of a label, and whether all series have it.
func valuesOf(family *dto.MetricFamily, label string) (values []string, all bool) {
	all = true
	for _, series := range family.GetMetric() {
		i := slices.IndexFunc(series.GetLabel(), func(pair *dto.LabelPair) bool { return pair.GetName() == label })
		if i < 0 {
			all = false
			continue
		}
		values = append(values, series.GetLabel()[i].GetValue())
	}
	return values, all
}
