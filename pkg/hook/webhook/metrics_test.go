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

package webhook_test

import (
	"maps"
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

// series returns the labels of each time series of a metric that belongs to a URL, with its count.
func series(t *testing.T, metric, url string) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["url"] != url {
				continue
			}
			text := ""
			for _, name := range slices.Sorted(maps.Keys(labels)) {
				if name != "url" {
					text += name + "=" + labels[name] + " "
				}
			}
			found[text] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return found
}

func TestMetrics(t *testing.T) {
	server := hooktest.NewServer(t, hooktest.WithTLS())
	server.Handle("/finalize", hooktest.Sequence(hooktest.Body("", `{}`), hooktest.Status(500, ""), hooktest.Body("", `{}`)))
	url := server.URL("/finalize")
	config := configure(url, trusting(server), func(c *webhook.Config) {
		c.Hook, c.ControllerKind, c.ControllerName = hook.Finalize, "DecoratorController", "labeler"
	})
	first := newClient(t, config)
	if _, err := first.Call(t.Context(), fleet, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Call(t.Context(), fleet, []byte(`{}`)); err == nil {
		t.Fatal("no error for status 500")
	}
	const fixed = "controller_name=labeler controller_type=DecoratorController "
	expect := func(when string, want map[string]map[string]float64) {
		t.Helper()
		for metric, wanted := range want {
			if diff := cmp.Diff(wanted, series(t, metric, url)); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", when, metric, diff)
			}
		}
	}
	used := map[string]map[string]float64{
		"metacontroller_finalize_requests_total": {
			"code=200 " + fixed + "method=post ": 1,
			"code=500 " + fixed + "method=post ": 1,
		},
		"metacontroller_finalize_request_duration_histogram_seconds": {fixed + "method=post ": 2},
		"metacontroller_finalize_tls_duration_histogram_seconds": {
			fixed + "event=tls_handshake_start ": 1, fixed + "event=tls_handshake_done ": 1,
		},
		"metacontroller_finalize_in_flight_requests": {fixed: 0},
	}
	expect("after two calls", used)

	second := newClient(t, config)
	first.Close()
	expect("after the first of two clients with the same labels was closed", used)
	second.Close()
	none := map[string]float64{}
	expect("after the last was closed", map[string]map[string]float64{
		"metacontroller_finalize_requests_total": none, "metacontroller_finalize_request_duration_histogram_seconds": none,
		"metacontroller_finalize_tls_duration_histogram_seconds": none, "metacontroller_finalize_in_flight_requests": none,
	})
}

func TestLookupsAreMeasured(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Body("", `{}`))
	_, port, err := net.SplitHostPort(server.Host())
	if err != nil {
		t.Fatal(err)
	}
	url := "http://localhost:" + port + "/sync"
	call(t, newClient(t, configure(url)))
	const fixed = "controller_name=fleet controller_type=CompositeController "
	want := map[string]float64{fixed + "event=dns_start ": 1, fixed + "event=dns_done ": 1}
	if diff := cmp.Diff(want, series(t, "metacontroller_sync_dns_duration_histogram_seconds", url)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
