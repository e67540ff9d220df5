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

package metrics_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // as the API server's libraries do

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gather returns every family that is scraped, by name.
func gather(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

// series returns the value of every series of a family that has the label value, by its other labels.
func series(t *testing.T, family, value string) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for _, m := range gather(t)[family].GetMetric() {
		var others []string
		has := value == ""
		for _, l := range m.GetLabel() {
			if l.GetValue() == value {
				has = true
			} else {
				others = append(others, l.GetValue())
			}
		}
		if has {
			found[strings.Join(others, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return found
}

func TestQueuesShareTheFamiliesOfClientGo(t *testing.T) {
	theirs := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Name: "theirs"})
	defer theirs.ShutDown()
	theirs.Add("a")
	c := metrics.NewController("CompositeController", "ours")
	c.Queue().Observe(func() metrics.QueueState { return metrics.QueueState{Live: 2, Again: 1} })
	defer c.Expose()()
	for _, f := range metrics.Families() {
		if !strings.HasPrefix(f.Name, "workqueue_") {
			continue
		}
		names := []string{}
		for _, m := range gather(t)[f.Name].GetMetric() {
			names = append(names, m.GetLabel()[0].GetValue())
		}
		slices.Sort(names)
		if diff := cmp.Diff([]string{"CompositeController-ours", "theirs"}, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f.Name, diff)
		}
	}
	if got := series(t, "workqueue_depth", "CompositeController-ours"); got[""] != 3 {
		t.Errorf("depth %v, want 3", got)
	}
}

func TestSeriesEndWithTheirController(t *testing.T) {
	first := metrics.NewController("DecoratorController", "short")
	endFirst := first.Expose()
	first.Synced(metrics.Succeeded, time.Second)
	first.SyncError("Forbidden")
	first.SyncError("NeverHeardOf")
	first.CountParents(func() int { return 3 })
	first.CountExpectations(func() int { return 2 })
	first.CountRemembered(func() metrics.Remembered {
		return metrics.Remembered{
			Parents: 1, Children: 2, CustomizeResponses: 3, EtagResponses: 4, OwnWrites: 5, SyncedParents: 6,
			Settling: 8, Deletions: 9, Obstacles: 10, Told: 11, Failing: 12, Finalizing: 13, Rights: 14, Selectors: 15, Revisions: 16,
		}
	})
	const label = "DecoratorController-short"
	for _, tc := range []struct {
		family string
		want   map[string]float64
	}{
		{"metacontroller_syncs_total", map[string]float64{"success": 1, "error": 0, "waiting": 0, "postponed": 0}},
		{"metacontroller_sync_duration_seconds", map[string]float64{"": 1}},
		{"metacontroller_parents", map[string]float64{"ready": 3, "failing": 0, "waiting": 0, "postponed": 0}},
		{"metacontroller_expectations_pending", map[string]float64{"": 2}},
		{"metacontroller_remembered", map[string]float64{
			"parents": 1, "children": 2, "customize_responses": 3, "etag_responses": 4, "own_writes": 5, "synced_parents": 6,
			"settling": 8, "deletions": 9, "obstacles": 10, "told": 11, "failing": 12, "finalizing": 13, "rights": 14, "selectors": 15, "revisions": 16,
		}},
	} {
		if diff := cmp.Diff(tc.want, series(t, tc.family, label)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.family, diff)
		}
	}
	errs := series(t, "metacontroller_sync_errors_total", label)
	if errs["Forbidden"] != 1 || errs[metrics.ReasonOther] != 1 || len(errs) != len(metrics.Reasons()) {
		t.Errorf("errors by reason: %v; an unknown reason counts as %s", errs, metrics.ReasonOther)
	}

	// The controller changed: its successor is exposed before it ends.
	second := metrics.NewController("DecoratorController", "short")
	endSecond := second.Expose()
	second.SyncError("Invalid")
	endFirst()
	if errs := series(t, "metacontroller_sync_errors_total", label); errs["Invalid"] != 1 || errs["Forbidden"] != 0 {
		t.Errorf("errors by reason: %v; want those of the successor", errs)
	}
	endSecond()
	for name, family := range gather(t) {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					t.Errorf("%s is left after the controller ended", name)
				}
			}
		}
	}
}

func TestConditionsAreShownAsTheyAreNow(t *testing.T) {
	const label = "CompositeController-told"
	var now []metav1.Condition
	end := metrics.ExposeConditions("CompositeController", "told", func() []metav1.Condition { return now })
	defer end()
	for _, tc := range []struct {
		name string
		now  []metav1.Condition
		want map[string]float64
	}{
		{"none yet", nil, map[string]float64{}},
		{
			"unknown",
			[]metav1.Condition{{Type: v1alpha1.ConditionHooksHealthy, Status: metav1.ConditionUnknown}},
			map[string]float64{"HooksHealthy True": 0, "HooksHealthy False": 0, "HooksHealthy Unknown": 1},
		},
		{"two, and one of another client", []metav1.Condition{
			{Type: v1alpha1.ConditionPaused, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse},
			{Type: "Foreign", Status: metav1.ConditionTrue},
		}, map[string]float64{
			"Paused True": 1, "Paused False": 0, "Paused Unknown": 0, "Ready True": 0, "Ready False": 1, "Ready Unknown": 0,
		}},
	} {
		now = tc.now
		if diff := cmp.Diff(tc.want, series(t, "metacontroller_controller_condition", label)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	successor := metrics.ExposeConditions("CompositeController", "told", func() []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	})
	end()
	if got := series(t, "metacontroller_controller_condition", label); got["Ready True"] != 1 || len(got) != 3 {
		t.Errorf("%v; want the conditions of the successor, not those of the controller that ended", got)
	}
	successor()
	if got := series(t, "metacontroller_controller_condition", label); len(got) != 0 {
		t.Errorf("%v is left after the controller ended", got)
	}
}

func TestProcessMetrics(t *testing.T) {
	metrics.Register()
	before := series(t, "metacontroller_child_writes_total", "update")["conflict"]
	metrics.ChildWrite(metrics.Update, metrics.Conflicted)
	metrics.EventDropped(metrics.TooMany)
	withdraw := metrics.ExposeCache(func(yield func(string, int, int64)) {
		yield("pods", 2, 100)
		yield("pods", 1, 50)
	})
	other := metrics.ExposeCache(func(yield func(string, int, int64)) { yield("pods", 4, 1) })
	metrics.ObserveRequestBudget(func() (int64, int64) { return 8, 80 })
	metrics.ObserveResponseBudget(func() (int64, int64) { return 7, 70 })
	metrics.ObserveServingCertificate(func() (time.Time, bool) { return time.UnixMilli(1_700_000_000_500), true })
	metrics.RegistrationMissing(true)
	defer metrics.RegistrationMissing(false)
	metrics.HiddenDefinitions(3)
	defer metrics.HiddenDefinitions(0)
	_ = recovery.Call(t.Context(), "testing", func() error { panic("boom") })
	// The order of outcome and verb is that of the alphabet.
	if got := series(t, "metacontroller_child_writes_total", "update"); got["conflict"] != before+1 || len(got) != 5 {
		t.Errorf("writes: %v", got)
	}
	for family, want := range map[string]float64{
		"metacontroller_cache_objects": 7, "metacontroller_cache_bytes": 151, "metacontroller_hook_response_bytes": 7,
		"metacontroller_hook_response_limit_bytes": 70, "metacontroller_hook_request_bytes": 8, "metacontroller_registration_missing": 1,
		"metacontroller_hidden_definitions":                               3,
		"metacontroller_serving_certificate_expiration_timestamp_seconds": 1_700_000_000.5,
		"metacontroller_hook_request_limit_bytes":                         80, "metacontroller_panics_total": float64(recovery.Count()),
	} {
		got := 0.
		for _, v := range maps.All(series(t, family, "")) {
			got += v
		}
		if family == "metacontroller_cache_objects" || family == "metacontroller_cache_bytes" {
			got = series(t, family, "pods")[""]
		}
		if got != want {
			t.Errorf("%s = %v, want %v", family, got, want)
		}
	}
	if series(t, "metacontroller_events_dropped_total", "limit")[""] < 1 {
		t.Error("a dropped event is not counted")
	}
	withdraw()
	other()
	if got := series(t, "metacontroller_cache_objects", "pods"); len(got) != 0 {
		t.Errorf("a cache that ended is still shown: %v", got)
	}
}

// TestWhatIsScrapedIsDeclared keeps the reference true: it is made of the declarations.
func TestWhatIsScrapedIsDeclared(t *testing.T) {
	c := metrics.NewController("CompositeController", "all")
	c.Queue().Observe(func() metrics.QueueState { return metrics.QueueState{} })
	c.CountParents(func() int { return 1 })
	c.CountExpectations(func() int { return 1 })
	c.CountRemembered(func() metrics.Remembered { return metrics.Remembered{} })
	defer c.Expose()()
	defer metrics.ExposeConditions("CompositeController", "all", func() []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	})()
	defer metrics.ExposeCache(func(yield func(string, int, int64)) { yield("pods", 1, 1) })()
	metrics.ObserveRequestBudget(func() (int64, int64) { return 0, 0 })
	metrics.ObserveResponseBudget(func() (int64, int64) { return 0, 0 })
	metrics.ObserveServingCertificate(func() (time.Time, bool) { return time.Now(), true })
	for _, hook := range []string{"sync", "finalize", "customize"} {
		v := metrics.Hook(hook)
		v.Requests.WithLabelValues("u", "n", "t", "200", "post").Inc()
		v.Duration.WithLabelValues("u", "n", "t", "post").Observe(1)
		v.DNS.WithLabelValues("u", "n", "t", "dns_done").Observe(1)
		v.TLS.WithLabelValues("u", "n", "t", "tls_handshake_done").Observe(1)
		v.InFlight.WithLabelValues("u", "n", "t").Inc()
	}
	scraped := gather(t)
	for _, f := range metrics.Families() {
		family, ok := scraped[f.Name]
		if !ok {
			t.Errorf("%s is declared and not scraped", f.Name)
			continue
		}
		if got := strings.ToLower(family.GetType().String()); got != string(f.Type) {
			t.Errorf("%s is a %s, and is declared as a %s", f.Name, got, f.Type)
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
				if values := f.Values[l.GetName()]; values != nil && !slices.Contains(values, l.GetValue()) {
					t.Errorf("%s has the undeclared value %s=%s", f.Name, l.GetName(), l.GetValue())
				}
			}
			if diff := cmp.Diff(slices.Sorted(slices.Values(f.Labels)), labels); diff != "" {
				t.Errorf("labels of %s (-declared +scraped):\n%s", f.Name, diff)
			}
		}
		delete(scraped, f.Name)
	}
	for name := range scraped {
		if strings.HasPrefix(name, "metacontroller_") {
			t.Errorf("%s is scraped and not declared", name)
		}
	}
}

func TestNothingIsCountedWithoutAController(*testing.T) {
	var c *metrics.Controller
	c.Synced(metrics.Failed, time.Second)
	c.SyncError("Forbidden")
	c.CountParents(nil)
	c.CountExpectations(nil)
	c.CountRemembered(nil)
	q := c.Queue()
	q.Added()
	q.Retried()
	q.Started(time.Second)
	q.Finished(time.Second)
	q.Observe(nil)
	c.Expose()()
}

func BenchmarkSync(b *testing.B) {
	c := metrics.NewController("CompositeController", "bench")
	b.ReportAllocs()
	for b.Loop() {
		c.Queue().Added()
		c.Queue().Started(time.Millisecond)
		c.Synced(metrics.Succeeded, time.Millisecond)
		c.Queue().Finished(time.Millisecond)
	}
}

func BenchmarkScrape100(b *testing.B) {
	for n := range 100 {
		c := metrics.NewController("CompositeController", fmt.Sprint(n))
		c.Queue().Observe(func() metrics.QueueState { return metrics.QueueState{} })
		b.Cleanup(c.Expose())
	}
	for b.Loop() {
		if _, err := legacyregistry.DefaultGatherer.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
