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

package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Type is the type of a metric.
type Type string

// The types of metrics that there are here.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// A Family describes a metric and its labels.
type Family struct {
	// Name is the name as it is scraped.
	Name string
	Type Type
	// Help is one or more sentences. Families that client-go declares too have its very words: two texts are an error.
	Help string
	// Labels are the names of the labels, and Values what a label can have, for those with a fixed list.
	Labels []string
	Values map[string][]string
	// Buckets are the upper bounds of a histogram's buckets in seconds.
	Buckets []float64

	desc *prometheus.Desc
}

// families are all that are declared, in order of declaration.
var families []*Family

// simple declares a family of which nothing more is to be said.
func simple(t Type, name, help string, labels ...string) *Family {
	return declare(Family{Name: name, Type: t, Help: help, Labels: labels})
}

// declare is called for variables of this package alone.
func declare(f Family) *Family {
	f.desc = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	families = append(families, &f)
	return &f
}

// Families returns a description of every metric of the engine, by name.
func Families() []Family {
	var all []Family
	for _, f := range families {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b Family) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (f *Family) labels(values []string) prometheus.Labels {
	set := prometheus.Labels{}
	for i, name := range f.Labels {
		set[name] = values[i]
	}
	return set
}

// counter returns a series, which is not registered.
func (f *Family) counter(values ...string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: f.Name, Help: f.Help, ConstLabels: f.labels(values)})
}

// histogram returns a series, which is not registered.
func (f *Family) histogram(values ...string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: f.Name, Help: f.Help, ConstLabels: f.labels(values), Buckets: f.Buckets,
	})
}

func (f *Family) counterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
}

func (f *Family) gauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: f.Name, Help: f.Help})
}

func (f *Family) gaugeVec() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.Labels)
}

func (f *Family) histogramVec() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets}, f.Labels)
}

// constant returns a gauge with a value that was taken now.
func (f *Family) constant(value float64, values ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, value, values...)
}

// registry is what is shown at /metrics. It is a collector without descriptors: the registry of the process lets such a one
// add to families that others declare too, as client-go's queues declare workqueue_depth.
type registry struct {
	once        sync.Once
	mu          sync.Mutex
	controllers map[string]*Controller
	conditions  conditionSources
}

var exposed = registry{controllers: map[string]*Controller{}, conditions: conditionSources{sources: map[string]*ConditionSource{}}}

// Register shows the metrics of the engine at /metrics. Only the first call has an effect.
func Register() {
	exposed.once.Do(func() { legacyregistry.Registerer().MustRegister(&exposed) })
}

// Collector returns what collects the metrics of the controllers that run, for a registry other than that of /metrics.
func Collector() prometheus.Collector { return &exposed }

func (r *registry) add(c *Controller) {
	Register()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.controllers[c.name] = c
}

func (r *registry) remove(c *Controller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.controllers[c.name] == c {
		delete(r.controllers, c.name)
	}
}

// Describe implements prometheus.Collector.
func (r *registry) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r *registry) Collect(ch chan<- prometheus.Metric) {
	global.collect(ch)
	r.conditions.collect(ch)
	for _, vectors := range hookVectors {
		vectors.collect(ch)
	}
	r.mu.Lock()
	controllers := slices.Collect(maps.Values(r.controllers))
	r.mu.Unlock()
	for _, c := range controllers {
		c.collect(ch)
	}
}

// Reasons of errors for metacontroller_sync_errors_total, beside the reasons of API errors.
const (
	// ReasonHook is a hook that could not be called, or that responded with an error.
	ReasonHook = "Hook"
	// ReasonResponse is a response of a hook that cannot be used.
	ReasonResponse = "Response"
	// ReasonPanic is a panic that was recovered.
	ReasonPanic = "Panic"
	// ReasonOther is everything else.
	ReasonOther = "Other"
)

// Reasons returns the values that the label reason can have.
func Reasons() []string {
	return []string{
		ReasonHook, ReasonResponse, ReasonPanic, "AlreadyExists", "BadRequest", "Conflict", "Forbidden", "Invalid", "NotFound",
		"Timeout", "TooManyRequests", "Unauthorized", "InternalError", "ServiceUnavailable", ReasonOther,
	}
}

// labelName is the label of a controller in the families of client-go, labelController in ours.
const (
	labelName       = "name"
	labelController = "controller"
)

// The families of workqueue_* are those of k8s.io/component-base/metrics/prometheus/workqueue, word by word.
var (
	queueBuckets  = prometheus.ExponentialBuckets(10e-9, 10, 10)
	queueDepth    = simple(Gauge, "workqueue_depth", "[BETA] Current depth of workqueue", labelName)
	queueAdds     = simple(Counter, "workqueue_adds_total", "[BETA] Total number of adds handled by workqueue", labelName)
	queueDuration = declare(Family{
		Name: "workqueue_queue_duration_seconds", Type: Histogram, Labels: []string{labelName}, Buckets: queueBuckets,
		Help: "[BETA] How long in seconds an item stays in workqueue before being requested.",
	})
	workDuration = declare(Family{
		Name: "workqueue_work_duration_seconds", Type: Histogram, Labels: []string{labelName}, Buckets: queueBuckets,
		Help: "[BETA] How long in seconds processing an item from workqueue takes.",
	})
	unfinishedWork = simple(Gauge, "workqueue_unfinished_work_seconds",
		"[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large "+
			"values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.", labelName)
	longestRunning = simple(Gauge, "workqueue_longest_running_processor_seconds",
		"[BETA] How many seconds has the longest running processor for workqueue been running.", labelName)
	queueRetries = simple(Counter, "workqueue_retries_total", "[BETA] Total number of retries handled by workqueue", labelName)
)

// The families of controllers.
var (
	controllerCondition = declare(Family{
		Name: "metacontroller_controller_condition", Type: Gauge, Labels: []string{labelController, "condition", "status"},
		Help: "1 for the status of each condition of a controller object, 0 for the others: what kubectl wait and kubectl describe show. " +
			"A condition that the object does not have is absent.",
		Values: map[string][]string{"condition": ConditionTypes, "status": {"True", "False", "Unknown"}},
	})
	queueKeys = declare(Family{
		Name: "metacontroller_workqueue_keys", Type: Gauge, Labels: []string{labelController, "state"},
		Help: "Parents in a controller's workqueue by state. A parent may be counted in several: queued by priority (live, " +
			"retry, self_triggered, resync), queued again after its sync (again), being synced (processing), held back by " +
			"expectations (held), in back-off or postponed (retrying), and with a time for its next resync (scheduled).",
		Values: map[string][]string{"state": {
			"live", "retry", "self_triggered", "resync", "again", "processing", "held", "retrying", "scheduled",
		}},
	})
	syncs = declare(Family{
		Name: "metacontroller_syncs_total", Type: Counter, Labels: []string{labelController, "result"},
		Help:   "Syncs of parents by result.",
		Values: map[string][]string{"result": {"success", "error", "waiting", "postponed"}},
	})
	syncDuration = declare(Family{
		Name: "metacontroller_sync_duration_seconds", Type: Histogram, Labels: []string{labelController},
		Help: "Duration of syncs of parents, including hook calls and writes.", Buckets: prometheus.ExponentialBuckets(.001, 4, 9),
	})
	syncErrors = declare(Family{
		Name: "metacontroller_sync_errors_total", Type: Counter, Labels: []string{labelController, "reason"},
		Help:   "Syncs that failed, by the reason of the error: that of the API server, or one of the engine.",
		Values: map[string][]string{"reason": Reasons()},
	})
	parents = declare(Family{
		Name: "metacontroller_parents", Type: Gauge, Labels: []string{labelController, "state"},
		Help:   "Parents of a controller by the result of their last sync; ready are those that neither fail nor wait.",
		Values: map[string][]string{"state": {"ready", "failing", "waiting", "postponed"}},
	})
	expectationsPending = simple(Gauge, "metacontroller_expectations_pending",
		"Parents whose last writes the controller's caches do not show yet.", labelController)
	remembered = declare(Family{
		Name: "metacontroller_remembered", Type: Gauge, Labels: []string{labelController, "what"},
		Help: "What a controller remembers between syncs: parents with records of children (parents), these records (children), " +
			"responses of the customize hook (customize_responses), responses by their entity tags (etag_responses), own " +
			"writes of parents whose events were not seen yet (own_writes), parents whose recent syncs are recorded (synced_parents), " +
			"parents of which it is known whether they settle (settling), children whose deletion counts for the guard " +
			"(deletions), parents whose children have names that other objects have (obstacles), parents that were told something that is told once " +
			"(told), parents whose last syncs failed or ended with a conflict (failing), parents that wait for the finalize hook (finalizing), rights " +
			"that were reviewed, needed or refused (rights), parents whose selectors are known (selectors), and revisions of which it is not known " +
			"whether they were written (revisions).",
		Values: map[string][]string{"what": {
			"parents", "children", "customize_responses", "etag_responses", "own_writes", "synced_parents",
			"settling", "deletions", "obstacles", "told", "failing", "finalizing", "rights", "selectors", "revisions",
		}},
	})
)

// The families of the process.
var (
	childWrites = declare(Family{
		Name: "metacontroller_child_writes_total", Type: Counter, Labels: []string{"verb", "outcome"},
		Help: "Requests that write children, by what they do and how they ended: accepted (written, or unchanged if there was " +
			"nothing to do), refused (conflict, rejected), or without a response (error). A trial is a dry run, which changes nothing.",
		Values: map[string][]string{
			"verb":    {"create", "update", "apply", "delete", "trial"},
			"outcome": {"written", "unchanged", "conflict", "rejected", "error"},
		},
	})
	cacheObjects = simple(Gauge, "metacontroller_cache_objects",
		"Objects in the caches of the engine by resource.", "resource")
	cacheBytes = simple(Gauge, "metacontroller_cache_bytes",
		"Size of the JSON of the objects in the caches of the engine by resource.", "resource")
	requestBytes = simple(Gauge, "metacontroller_hook_request_bytes",
		"Bytes of requests that are being sent to hooks now, over all controllers.")
	requestLimit = simple(Gauge, "metacontroller_hook_request_limit_bytes",
		"Bytes of requests that may be sent to hooks at once; hook calls wait above it.")
	responseBytes = simple(Gauge, "metacontroller_hook_response_bytes",
		"Bytes of hook responses that are held now, over all controllers.")
	responseLimit = simple(Gauge, "metacontroller_hook_response_limit_bytes",
		"Bytes of hook responses that may be held at once; hook calls wait above it.")
	engineRunning = simple(Gauge, "metacontroller_engine_running",
		"1 while this process runs controllers, 0 while it waits to be elected or only serves the API.")
	registrationMissing = simple(Gauge, "metacontroller_registration_missing",
		"1 while this process is to be registered at the cluster as its API server and is not, 0 otherwise.")
	hiddenDefinitions = simple(Gauge, "metacontroller_hidden_definitions",
		"CustomResourceDefinitions of the API group that the cluster has while this process is registered in their place.")
	servingCertificateEnd = simple(Gauge, "metacontroller_serving_certificate_expiration_timestamp_seconds",
		"When the certificate that this server serves expires, in seconds since 1970.")
	panics = simple(Counter, "metacontroller_panics_total",
		"Panics of the engine that were recovered. Each is a bug; the log has its stack.")
	eventsDropped = declare(Family{
		Name: "metacontroller_events_dropped_total", Type: Counter, Labels: []string{"reason"},
		Help: "Events that were not recorded: Normal ones above the budget of the process (budget), those above the limit for " +
			"one kind of message about one object (limit), those that found too many waiting (queue), and those that could not " +
			"be written (write).",
		Values: map[string][]string{"reason": {"budget", "limit", "queue", "write"}},
	})
)

// Labels that all metrics of hooks have, in this order.
const (
	LabelURL            = "url"
	LabelControllerName = "controller_name"
	LabelControllerType = "controller_type"
)

// HookVectors are the metrics of one kind of hook, under the names of docs/reference/contract.md#s19.2. Whoever makes a series
// deletes it.
type HookVectors struct {
	// Behind the labels of all, Requests has code and method, Duration method, DNS and TLS event.
	Requests           *prometheus.CounterVec
	Duration, DNS, TLS *prometheus.HistogramVec
	InFlight           *prometheus.GaugeVec
}

// hookVectors are those of every kind of hook.
var hookVectors = map[string]HookVectors{
	"sync": declareHook("sync"), "finalize": declareHook("finalize"), "customize": declareHook("customize"),
}

// Hook returns the metrics of one kind of hook: sync, finalize or customize.
func Hook(name string) HookVectors { return hookVectors[name] }

func declareHook(hook string) HookVectors {
	declared := func(t Type, name, help string, buckets []float64, more ...string) *Family {
		return declare(Family{
			Name: "metacontroller_" + hook + "_" + name, Type: t, Help: help, Buckets: buckets,
			Labels: append([]string{LabelURL, LabelControllerName, LabelControllerType}, more...),
		})
	}
	return HookVectors{
		Requests: declared(Counter, "requests_total",
			"Requests to the "+hook+" hook that got a response, by status code and method.", nil, "code", "method").counterVec(),
		Duration: declared(Histogram, "request_duration_histogram_seconds",
			"Time from sending a request to the "+hook+" hook to the headers of its response.", prometheus.DefBuckets, "method").histogramVec(),
		DNS: declared(Histogram, "dns_duration_histogram_seconds",
			"Time from the start of a call of the "+hook+" hook to the events dns_start and dns_done.",
			[]float64{.005, .01, .025, .05}, "event").histogramVec(),
		TLS: declared(Histogram, "tls_duration_histogram_seconds",
			"Time from the start of a call of the "+hook+" hook to the events tls_handshake_start and tls_handshake_done.",
			[]float64{.05, .1, .25, .5}, "event").histogramVec(),
		InFlight: declared(Gauge, "in_flight_requests",
			"Requests to the "+hook+" hook that wait for a response.", nil).gaugeVec(),
	}
}

func (v HookVectors) collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{v.Requests, v.Duration, v.DNS, v.TLS, v.InFlight} {
		c.Collect(ch)
	}
}
