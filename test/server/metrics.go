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

package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

// Page is what a server's /metrics says at one moment, by the names of the metrics.
type Page map[string]*dto.MetricFamily

// ofEngine are the prefixes of the metrics of the engine. The others are nine tenths of the text, and tests read it often.
var ofEngine = []string{"metacontroller_", "workqueue_"}

// engineOnly returns the text without the metrics that are not the engine's.
func engineOnly(text string) string {
	const start = "# HELP "
	var wanted strings.Builder
	for metric := range strings.SplitSeq("\n"+text, "\n"+start) {
		if slices.ContainsFunc(ofEngine, func(prefix string) bool { return strings.HasPrefix(metric, prefix) }) {
			wanted.WriteString(start + metric + "\n")
		}
	}
	return wanted.String()
}

// Parse parses the text of a page.
func Parse(text string) (Page, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	page, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return page, nil
}

// Metrics reads metrics of the engine with an administrator's certificate: those named, or all, which is much to print and to read. Those who ask
// for the same ones while they are being read share what is read next: a page is always from after the call.
func (s *Server) Metrics(ctx context.Context, names ...string) (Page, error) {
	path := "/metrics?" + named(names...)
	asked := time.Now()
	s.scraping.Lock()
	defer s.scraping.Unlock()
	if last := s.scraped[path]; last.began.After(asked) {
		return last.page, nil
	}
	began := time.Now()
	text, err := s.Read(ctx, path)
	if err != nil {
		return nil, err
	}
	page, err := Parse(engineOnly(text))
	if err != nil {
		return nil, err
	}
	if s.scraped == nil {
		s.scraped = map[string]scrape{}
	}
	s.scraped[path] = scrape{began, page}
	return page, nil
}

// A scrape is a page, and when reading it began.
type scrape struct {
	began time.Time
	page  Page
}

// fetch reads a path with an administrator's certificate. The caller closes what it returns.
func (s *Server) fetch(ctx context.Context, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL(path), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	transport, err := s.Transport()
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("reading %s: %s", path, response.Status)
	}
	return response.Body, nil
}

// URL is where the server itself serves a path, past the cluster.
func (s *Server) URL(path string) string {
	scheme := "https"
	if s.options.Definitions != "" {
		scheme = "http"
	}
	return fmt.Sprintf("%s://127.0.0.1:%d%s", scheme, s.port, path)
}

// Transport is for requests to the server itself, past the cluster, with an administrator's certificate. Whether it is the right server does
// not matter to it.
func (s *Server) Transport() (http.RoundTripper, error) {
	config := s.cluster.Config(s.t)
	// client-go keeps transports of equal configurations, so that connections are used again. To compress is more work than to send.
	transport, err := rest.TransportFor(&rest.Config{DisableCompression: true, TLSClientConfig: rest.TLSClientConfig{
		Insecure: true, CertData: config.CertData, KeyData: config.KeyData, CertFile: config.CertFile, KeyFile: config.KeyFile,
	}})
	if err != nil {
		return nil, fmt.Errorf("making a client of the server: %w", err)
	}
	return transport, nil
}

// Value adds up the samples of a metric that have the given labels, which are names followed by their values. It reports
// whether there is one.
func (p Page) Value(metric string, labels ...string) (float64, bool) {
	sum, found := 0.0, false
	for _, sample := range p[metric].GetMetric() {
		if !matches(sample, labels) {
			continue
		}
		found = true
		// A sample has one of these; the others are zero.
		sum += sample.GetGauge().GetValue() + sample.GetCounter().GetValue() + sample.GetUntyped().GetValue()
	}
	return sum, found
}

// ByLabel adds up the samples of a metric by the values of one label.
func (p Page) ByLabel(metric, label string) map[string]float64 {
	sums := map[string]float64{}
	for _, sample := range p[metric].GetMetric() {
		sums[labelsOf(sample)[label]] += sample.GetGauge().GetValue() + sample.GetCounter().GetValue()
	}
	return sums
}

func matches(sample *dto.Metric, labels []string) bool {
	have := labelsOf(sample)
	for i := 0; i < len(labels); i += 2 {
		if have[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

func labelsOf(sample *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range sample.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}

// Read returns what the server serves at a path with an administrator's certificate.
func (s *Server) Read(ctx context.Context, path string) (string, error) {
	body, err := s.fetch(ctx, path)
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(body)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return string(text), nil
}

// Heap has the server collect garbage and returns how many bytes of its heap are reachable, and a profile of them as pprof reads it.
func (s *Server) Heap(ctx context.Context) (int, string, error) {
	var profile string
	for range 4 { // What has a finalizer, or is in a pool, goes with a later collection.
		var err error
		if profile, err = s.Read(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return 0, "", err
		}
	}
	// Of what the last collection found. What is allocated includes what the profile was printed with.
	const live = "go_gc_heap_live_bytes"
	text, err := s.Read(ctx, "/metrics?"+named(live))
	if err != nil {
		return 0, "", err
	}
	page, err := Parse(text)
	if err != nil {
		return 0, "", err
	}
	size, found := page.Value(live)
	if !found {
		return 0, "", fmt.Errorf("the server has no metric %s", live)
	}
	return int(size), profile, nil
}

// named is the query for metrics with these names; without any it is that for all.
func named(names ...string) string { return url.Values{"name[]": names}.Encode() }
