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

package options

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/destination"
)

const (
	// DynamicApply is the apply strategy that merges the observed, the last applied and the desired object
	// (docs/reference/contract.md#s12).
	DynamicApply = "dynamic-apply"
	// ServerSideApply is the apply strategy that leaves the merge to the API server (docs/reference/contract.md#s13).
	ServerSideApply = "server-side-apply"

	defaultNamespace = "metacontroller"
	// maxFieldManager is the longest field manager that API servers accept, in bytes.
	maxFieldManager = 128
	namespaceFile   = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// Controllers are the options of the engine that runs controllers. The flags are those of docs/reference/contract.md#s19.1;
// defaults differ where docs/reference/compatibility.md#d19.1 says so.
type Controllers struct {
	// Enabled says that controllers are run. Without, the API is served alone. Default true.
	Enabled bool
	// Workers is the maximum number of concurrent hook calls of one controller, unless its spec.workers is set. Default 20.
	Workers int
	// DiscoveryInterval is accepted for compatibility and has no effect: CRDs and APIServices are watched.
	DiscoveryInterval time.Duration
	// CacheFlushInterval is the time after which every parent is synced again even if nothing changed. Default 30 min.
	CacheFlushInterval time.Duration
	// ClientQPS and ClientBurst limit the requests to the cluster but for events. 0 or less: no limit, the default.
	ClientQPS   float32
	ClientBurst int
	// EventsQPS and EventsBurst limit the events of one kind of message about one object, in events per second. Defaults 1/300 and 25.
	EventsQPS   float32
	EventsBurst int
	// TargetLabelSelector restricts the engine to controller objects with matching labels. Empty: all.
	TargetLabelSelector string
	// ApplyStrategy is DynamicApply or ServerSideApply.
	ApplyStrategy string
	// FieldManager is the field manager of all controllers for server-side apply. Empty: each has its own.
	FieldManager string
	// HookManagedFields includes metadata.managedFields in the objects of hook requests. Default false.
	HookManagedFields bool
	// HookResponseLimit is the size above which a hook's response is rejected. Default 32 MiB.
	HookResponseLimit resource.QuantityValue
	// HookRequestBudget is the size of the requests to all hooks that are sent at once. Default 256 MiB.
	HookRequestBudget resource.QuantityValue
	// HookResponseBudget is the size of the responses of all hooks that are held at once. Default 256 MiB.
	HookResponseBudget resource.QuantityValue
	// HookEtagBudget is the size of the responses of all hooks that are remembered by their entity tags. Default 128 MiB.
	HookEtagBudget resource.QuantityValue
	// Webhooks say where hooks may be.
	Webhooks Webhooks
	// SyncHistoryBytes is the size of the recent syncs that are remembered. 0: none are. Default 4 MiB.
	SyncHistoryBytes resource.QuantityValue
	// Namespace is the server's own. It holds the ControllerRevisions of cluster-scoped parents.
	Namespace string
}

func newControllers() *Controllers {
	return &Controllers{
		Enabled:            true,
		Workers:            20,
		DiscoveryInterval:  30 * time.Second,
		CacheFlushInterval: 30 * time.Minute,
		EventsQPS:          1.0 / 300,
		EventsBurst:        25,
		ApplyStrategy:      DynamicApply,
		HookResponseLimit:  resource.QuantityValue{Quantity: resource.MustParse("32Mi")},
		HookRequestBudget:  resource.QuantityValue{Quantity: resource.MustParse("256Mi")},
		HookResponseBudget: resource.QuantityValue{Quantity: resource.MustParse("256Mi")},
		HookEtagBudget:     resource.QuantityValue{Quantity: resource.MustParse("128Mi")},
		Webhooks:           newWebhooks(),
		SyncHistoryBytes:   resource.QuantityValue{Quantity: resource.MustParse("4Mi")},
		Namespace:          ownNamespace(),
	}
}

// ownNamespace is the namespace of the pod, or the one of the manifests.
func ownNamespace() string {
	if b, err := os.ReadFile(namespaceFile); err == nil && len(b) > 0 {
		return strings.TrimSpace(string(b))
	}
	return defaultNamespace
}

func (c *Controllers) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Enabled, "enable-controllers", c.Enabled, "Run controllers. If false, this server serves the API alone: nothing is "+
		"reconciled unless another replica does, and what the status of a controller says may be from before.")
	fs.IntVar(&c.Workers, "workers", c.Workers, "Number of calls of each controller's hooks that are made at the same time. "+
		"A controller's spec.workers overrides it.")
	fs.DurationVar(&c.CacheFlushInterval, "cache-flush-interval", c.CacheFlushInterval,
		"Time after which every parent is synced again, even if nothing changed.")
	fs.DurationVar(&c.DiscoveryInterval, "discovery-interval", c.DiscoveryInterval,
		"Has no effect: changes of the kinds that the cluster serves are watched.")
	fs.Float32Var(&c.ClientQPS, "client-go-qps", c.ClientQPS,
		"Requests per second to the cluster for all controllers together: lists, watches, discovery, reads and writes, "+
			"but not events, for which there is --events-qps. 0 or less: no limit; the cluster's API priority and fairness does that.")
	fs.IntVar(&c.ClientBurst, "client-go-burst", c.ClientBurst,
		"Requests to the cluster in excess of --client-go-qps that are let through at once.")
	fs.Float32Var(&c.EventsQPS, "events-qps", c.EventsQPS, "Events per second of one kind of message about one object.")
	fs.IntVar(&c.EventsBurst, "events-burst", c.EventsBurst, "Events of one kind of message about one object in excess of --events-qps that are let through at once.")
	fs.StringVar(&c.TargetLabelSelector, "target-label-selector", c.TargetLabelSelector,
		"Run only controllers whose labels match this selector. Empty: all.")
	fs.StringVar(&c.ApplyStrategy, "apply-strategy", c.ApplyStrategy, "How children are updated: "+DynamicApply+
		" merges what the hook returned into the child, with what it returned before; "+ServerSideApply+
		" leaves the merge to the API server. A controller's updateStrategy.apply overrides it.")
	fs.StringVar(&c.FieldManager, "apply-strategy-ssa-field-manager", c.FieldManager,
		"Field manager of all controllers for "+ServerSideApply+". Empty: each controller has its own, metacontroller/<kind>/<name>.")
	fs.BoolVar(&c.HookManagedFields, "hook-managed-fields", c.HookManagedFields,
		"Include metadata.managedFields in the objects that hooks are sent.")
	fs.Var(&c.HookResponseLimit, "hook-response-limit", "Size above which the response of a hook is rejected, for example 32Mi.")
	fs.Var(&c.HookRequestBudget, "hook-request-budget",
		"Size of the requests to all hooks that are sent at once, until they are written, without those of up to 64Ki; one hook uses up to a "+
			"quarter. Further requests wait for room within the timeout of their call.")
	fs.Var(&c.HookResponseBudget, "hook-response-budget",
		"Size of the responses of all hooks that are held at once, without those of up to 64Ki. Further responses wait for room within "+
			"the timeout of their call, in turns: the controller that holds least is next. A quarter is kept for controllers that hold nothing, if "+
			"there are several. A response of unknown length needs room for --hook-response-limit while it is read.")
	fs.Var(&c.HookEtagBudget, "hook-etag-budget",
		"Size of the responses of all hooks that are remembered by their entity tags. What exceeds it is not remembered.")
	c.Webhooks.addFlags(fs)
	fs.Var(&c.SyncHistoryBytes, "sync-history-bytes",
		"Size of the recent syncs of all controllers that are remembered for the subresource syncs. The last sync of each parent is remembered "+
			"beyond that, in short. 0: syncs are not recorded.")
	fs.StringVar(&c.Namespace, "namespace", c.Namespace,
		"Namespace of this server, which holds the ControllerRevisions of cluster-scoped parents. Default: that of the pod.")
}

func (c *Controllers) validate() []error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Workers < 1 {
		wrong("--workers must be at least 1, not %d", c.Workers)
	}
	if c.CacheFlushInterval <= 0 {
		wrong("--cache-flush-interval must be positive, not %s", c.CacheFlushInterval)
	}
	if c.EventsQPS <= 0 || c.EventsBurst < 1 {
		wrong("--events-qps and --events-burst must be positive, not %v and %d", c.EventsQPS, c.EventsBurst)
	}
	if c.HookResponseLimit.Value() < 1 {
		wrong("--hook-response-limit must be positive, not %s", c.HookResponseLimit.String())
	}
	if c.HookRequestBudget.Value() < 1 {
		wrong("--hook-request-budget must be positive, not %s", c.HookRequestBudget.String())
	}
	if c.HookResponseBudget.Cmp(c.HookResponseLimit.Quantity) < 0 {
		wrong("--hook-response-budget must be at least --hook-response-limit, not %s", c.HookResponseBudget.String())
	}
	if c.HookEtagBudget.Value() < 1 {
		wrong("--hook-etag-budget must be positive, not %s", c.HookEtagBudget.String())
	}
	if c.SyncHistoryBytes.Sign() < 0 {
		wrong("--sync-history-bytes must not be negative, but is %s", c.SyncHistoryBytes.String())
	}
	if c.Namespace == "" {
		wrong("--namespace must not be empty")
	}
	if _, err := labels.Parse(c.TargetLabelSelector); err != nil {
		wrong("--target-label-selector: %w", err)
	}
	switch c.ApplyStrategy {
	case DynamicApply, ServerSideApply:
	default:
		wrong("--apply-strategy must be %s or %s, not %q", DynamicApply, ServerSideApply, c.ApplyStrategy)
	}
	if len(c.FieldManager) > maxFieldManager {
		wrong("--apply-strategy-ssa-field-manager must have at most %d bytes, not %d", maxFieldManager, len(c.FieldManager))
	}
	return append(errs, c.Webhooks.validate()...)
}

const (
	// SameOriginRedirects follows redirects of hooks within the same scheme, host and port, and from http at port 80 to https at port 443.
	SameOriginRedirects = "same-origin"
	// NoRedirects follows none.
	NoRedirects = "none"

	// insideVariable is set by the kubelet in every container of a Pod.
	insideVariable = "KUBERNETES_SERVICE_HOST"
)

// Webhooks are the options of where hooks may be.
type Webhooks struct {
	// AllowedHosts are the only places where hooks may be; see [destination.Options]. Empty: anywhere that is not refused, the default.
	AllowedHosts []string
	// AllowLoopback says that hooks may be at loopback addresses. Default: whether this process runs outside of a cluster.
	AllowLoopback bool
	// Redirects is SameOriginRedirects, the default, or NoRedirects.
	Redirects string
}

func newWebhooks() Webhooks {
	return Webhooks{AllowLoopback: os.Getenv(insideVariable) == "", Redirects: SameOriginRedirects}
}

func (w *Webhooks) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&w.AllowedHosts, "webhook-allowed-hosts", w.AllowedHosts,
		"The only places where hooks may be: host names such as web.hooks, which is the Service web of the namespace hooks; namespaces such as "+
			".hooks, for web.hooks and web.hooks.svc, which are both looked up as web.hooks.svc; suffixes of host names with two labels or more, "+
			"such as .hooks.example.com, or .svc; IP addresses and networks such as 10.0.0.0/8, to which names must lead. Empty: anywhere. "+
			"Link-local, multicast and unspecified addresses, fd00:ec2::254 and the port of this process at addresses of its own machine are "+
			"refused in any case. Behind a proxy, which looks names up itself, names are checked as they are written: networks allow no names "+
			"there, .hooks allows web.hooks.svc alone, and numbers such as 2852039166 are refused.")
	fs.BoolVar(&w.AllowLoopback, "webhook-allow-loopback", w.AllowLoopback,
		"Allow hooks at loopback addresses. Default: true outside of a cluster, false in a Pod.")
	fs.StringVar(&w.Redirects, "webhook-redirects", w.Redirects,
		"Which redirects of hooks are followed: "+SameOriginRedirects+", those to the same scheme, host and port, and those of the same host "+
			"from http at port 80 to https at port 443, or "+NoRedirects+".")
}

func (w *Webhooks) validate() []error {
	var errs []error
	if _, err := w.Destinations(0); err != nil {
		errs = append(errs, err)
	}
	if w.Redirects != SameOriginRedirects && w.Redirects != NoRedirects {
		errs = append(errs, fmt.Errorf("--webhook-redirects must be %s or %s, not %q", SameOriginRedirects, NoRedirects, w.Redirects))
	}
	return errs
}

// Destinations returns the policy that the options describe. The port is that of this server; 0: none.
func (w *Webhooks) Destinations(port int) (*destination.Policy, error) {
	policy, err := destination.New(destination.Options{AllowedHosts: w.AllowedHosts, AllowLoopback: w.AllowLoopback, ServerPort: port})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", destination.AllowedHostsFlag, err)
	}
	return policy, nil
}
