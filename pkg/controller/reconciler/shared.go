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

package reconciler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-base/version"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/destination"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

// Shared is what all controllers share, as one of them sees it after [Shared.For]. It is safe for concurrent use.
type Shared struct {
	// Options are the settings.
	Options Options
	// Cluster reaches the cluster whose objects are reconciled.
	Cluster *cluster.Cluster
	// Own reaches the objects that this server stores.
	Own Own
	// Applier writes children, under one limit for all controllers, of which each has its share.
	Applier *apply.Applier
	// Rights says what service accounts may do.
	Rights access.Cluster
	// Access is what the service account of the controller may do; nil if it has none, and before For.
	Access *access.Access
	// Expectations makes the expectations of each controller.
	Expectations *expectations.Registry
	// Recorder records events.
	Recorder *events.Recorder
	// Handlers tells which controllers handle an object. Nil: it is not known.
	Handlers *Handlers
	// History remembers the syncs of all controllers. Nil: they are not recorded.
	History *history.Ring
	// ShuttingDown is closed when the process is to end, which the context of a controller that was stopped before does not say. Nil: it
	// never is.
	ShuttingDown <-chan struct{}
	// RequestBudget, ResponseBudget and EtagBudget bound what is sent to the hooks of all controllers at once, and the responses of them
	// that are held and remembered. Nil: no bound.
	RequestBudget, ResponseBudget, EtagBudget *fairqueue.Budget
	// Compiling is that of [hooks.Kinds].
	Compiling chan struct{}
}

// Own reaches the objects that this server stores, without the aggregation layer.
type Own struct {
	// Cache watches ControllerRevisions.
	Cache *cache.Cache
	// Client writes them.
	Client versioned.Interface
}

// Options are the settings of the engine (docs/reference/contract.md#s19.1). The zero value means the defaults.
type Options struct {
	// Workers is the number of calls of one controller's hooks that are made at the same time, where the controller does not
	// say. Default 20.
	Workers int
	// CacheFlushInterval is the time after which every parent is synced again even if nothing changed. Default 30 min.
	CacheFlushInterval time.Duration
	// KindsRecheck is how often built-in and aggregated kinds are looked for that come or go without an object that tells. Default 1 min.
	KindsRecheck time.Duration
	// ClientQPS and ClientBurst limit the requests to the cluster but for events. Zero or negative: no limit.
	ClientQPS   float32
	ClientBurst int
	// EventsQPS and EventsBurst limit the events of one kind of message about one object. Defaults 1/300 and 25.
	EventsQPS   float32
	EventsBurst int
	// TargetLabelSelector restricts the manager to controller objects with matching labels. Empty: all.
	TargetLabelSelector string
	// ServerSideApply says that children are written by server-side apply where their rule does not say. By default they are
	// merged here.
	ServerSideApply bool
	// FieldManager is the field manager of all controllers for server-side apply. Empty: each has its own.
	FieldManager string
	// HookManagedFields includes metadata.managedFields in what hooks are sent.
	HookManagedFields bool
	// HookResponseLimit is the size in bytes above which a hook's response is refused. Default 32 MiB.
	HookResponseLimit int64
	// HookRequestBudget is the number of bytes that are sent to hooks at once. Default 256 MiB.
	HookRequestBudget int64
	// HookResponseBudget is the number of bytes of hooks' responses that are held at once. Default 256 MiB.
	HookResponseBudget int64
	// HookEtagBudget is the number of bytes of hooks' responses that are remembered by their entity tags. Default 128 MiB.
	HookEtagBudget int64
	// HookDestinations are where hooks may be. Nil: where the nil policy allows them.
	HookDestinations *destination.Policy
	// HookRefuseRedirects says that no redirect of a hook is followed.
	HookRefuseRedirects bool
	// SyncHistoryBytes is the number of bytes of recent syncs that are remembered. Default 4 MiB; negative: syncs are not recorded.
	SyncHistoryBytes int64
	// ServerNamespace holds the ControllerRevisions of cluster-scoped parents. Default metacontroller.
	ServerNamespace string
	// HookTransport carries the calls of all hooks in place of connections to their addresses, as a simulation does. Nil: connections.
	HookTransport http.RoundTripper
	// TracerProvider gets the spans of syncs. Nil: there are none.
	TracerProvider trace.TracerProvider
	// Random returns numbers in [0,1) for the jitter of back-offs, and must be safe for concurrent use. Nil: math/rand/v2. A simulation
	// that shall be repeatable sets it.
	Random func() float64
}

// WithDefaults returns the options with defaults in place of what is not set.
func (o Options) WithDefaults() Options {
	o.Workers = positive(o.Workers, 20)
	o.CacheFlushInterval = positive(o.CacheFlushInterval, 30*time.Minute)
	o.HookResponseLimit = positive(o.HookResponseLimit, webhook.DefaultMaxResponseBytes)
	o.HookRequestBudget = positive(o.HookRequestBudget, webhook.DefaultRequestBudget)
	o.HookResponseBudget = positive(o.HookResponseBudget, webhook.DefaultResponseBudget)
	o.HookEtagBudget = positive(o.HookEtagBudget, webhook.DefaultEtagBudget)
	o.SyncHistoryBytes = cmp.Or(o.SyncHistoryBytes, history.DefaultBytes)
	o.ServerNamespace = cmp.Or(o.ServerNamespace, "metacontroller")
	o.ClientQPS = positive(o.ClientQPS, -1)
	return o
}

// positive returns a value, or else a default.
func positive[T cmp.Ordered](value, otherwise T) T {
	var zero T
	if value > zero {
		return value
	}
	return otherwise
}

// ResyncPeriod returns the time after which the parents of a controller that declares a resyncPeriodSeconds, or none, are
// synced again: at least a second, at most CacheFlushInterval (docs/reference/contract.md#s5.3).
func (o Options) ResyncPeriod(seconds *int32) time.Duration {
	if seconds == nil {
		return o.CacheFlushInterval
	}
	return min(o.CacheFlushInterval, time.Duration(max(*seconds, 1))*time.Second)
}

// For returns what a controller uses: with a service account it writes, and reads the credentials of its hooks, in that account's name.
// What is stored in this server is not reached by way of the cluster, and is written by the server for all controllers; so are events.
// The caller runs the Access, and the Credentials of the Cluster if there is one.
func (s *Shared) For(d Definition) (*Shared, error) {
	own := *s
	own.Applier = s.Applier.For(d.Kind+"/"+d.Meta.Name, d.Kind == v1alpha1.KindDecorator)
	if d.Account == nil {
		return &own, nil
	}
	own.Access = access.New(access.Config{Account: *d.Account, Needs: d.Needs(), Cluster: s.Rights, Random: s.Options.Random})
	cluster, err := s.Cluster.As(client.Identity{User: d.Account.User(), Observe: own.Access.Observe})
	if err != nil {
		return nil, fmt.Errorf("acting as the service account %s: %w", d.Account, err)
	}
	own.Cluster, own.Applier = cluster, own.Applier.With(cluster.Client)
	return &own, nil
}

// HookConfig returns what the hooks of a controller have in common.
func (s *Shared) HookConfig(kind, name string, endpoints []v1alpha1.EndpointConfig, workers int) webhook.Config {
	return webhook.Config{
		ControllerKind: kind, ControllerName: name, EndpointConfigs: endpoints, Credentials: s.Cluster.Credentials, Workers: workers,
		MaxResponseBytes: s.Options.HookResponseLimit,
		RequestBudget:    s.RequestBudget, ResponseBudget: s.ResponseBudget, EtagBudget: s.EtagBudget,
		Destinations: s.Options.HookDestinations, RefuseRedirects: s.Options.HookRefuseRedirects,
		ServerVersion: version.Get().GitVersion, Transport: s.Options.HookTransport,
	}
}

// maxFieldManager is the longest name of a field manager that API servers accept, in bytes.
const maxFieldManager = 128

// FieldManagerOf returns the field manager of a controller for server-side apply: metacontroller/<kind>/<name>, with the kind in
// lower case, unless the options name another one for all controllers. Of a name that is too long the end is a hash.
func (o Options) FieldManagerOf(kind, name string) string {
	if o.FieldManager != "" {
		return o.FieldManager
	}
	manager := plan.LegacyManager + "/" + strings.ToLower(kind) + "/" + name
	if len(manager) <= maxFieldManager {
		return manager
	}
	sum := sha256.Sum256([]byte(name))
	end := "-" + hex.EncodeToString(sum[:8])
	return manager[:maxFieldManager-len(end)] + end
}

// Managers returns prefixes of the names of field managers. The cache has to know what these managers applied: those that controllers have
// now, and those that they had before the option was set.
func (o Options) Managers() []string {
	if o.FieldManager != "" {
		return []string{plan.LegacyManager, o.FieldManager}
	}
	return []string{plan.LegacyManager}
}

// childRule returns how children of a resource are written, where an update strategy says what the others are: empty and nil leave it
// to the defaults.
func (o Options) childRule(
	r discovery.Resource, method v1alpha1.ChildUpdateMethod, apply v1alpha1.ChildApplyStrategy, force *bool,
) children.Rule {
	return children.Rule{
		Kind: r.GroupVersionKind(), Resource: r.GroupVersionResource, Namespaced: r.Namespaced, HasStatus: r.HasStatus,
		Method: cmp.Or(method, v1alpha1.ChildUpdateOnDelete), Force: force == nil || *force,
		ServerSide: apply == v1alpha1.ChildApplyServerSide || o.ServerSideApply && apply != v1alpha1.ChildApplyMerge,
	}
}

// Resolver finds the kinds that a definition names.
type Resolver struct {
	// Shared has the cluster and the defaults.
	Shared *Shared
	// Sources are the kinds of parents that Source found, and Children those of children that Child found, in order.
	Sources  []*Source
	Children []children.Rule
	// Missing are the kinds that the cluster does not serve at present.
	Missing []v1alpha1.ResourceRule
	// Fingerprint has a text for each kind that was looked for. It changes when the resource appears, disappears or gets another scope; it is
	// empty if the cluster does not say.
	Fingerprint []string
}

// Find finds a declared kind. If it is not served it is noted as missing, and found is false.
func (r *Resolver) Find(ctx context.Context, rule v1alpha1.ResourceRule) (resource discovery.Resource, found bool, err error) {
	resource, err = r.Shared.Cluster.Discovery.Resource(ctx, rule.APIVersion, rule.Resource)
	text := ""
	_, missing := errors.AsType[*discovery.NotFoundError](err)
	switch {
	case missing:
		text, err = "missing", nil
		r.Missing = append(r.Missing, rule)
	case err == nil:
		text = fmt.Sprintln(resource.GroupVersionResource, resource.Kind, resource.Namespaced, resource.HasStatus)
	}
	r.Fingerprint = append(r.Fingerprint, text)
	return resource, err == nil && !missing, err
}

// Source finds a declared kind of parents, nil if it is not served. The selectors, nil for all objects, are those of the field of the spec.
func (r *Resolver) Source(
	ctx context.Context, field string, rule v1alpha1.ResourceRule, byLabels *metav1.LabelSelector, byAnnotations *v1alpha1.AnnotationSelector,
	ignoreStatus *bool,
) (*Source, error) {
	selected, err := newSelector(byLabels, byAnnotations)
	if err != nil {
		return nil, &InvalidError{Reason: field + "." + err.Error()}
	}
	resource, found, err := r.Find(ctx, rule)
	if !found {
		return nil, err
	}
	source := &Source{
		Resource: resource, Selected: selected.selects, SelectedWith: selected.matches, Labels: selected.labels, IgnoreStatus: ptr.Deref(ignoreStatus, false),
	}
	r.Sources = append(r.Sources, source)
	return source, nil
}

// NotFound is the error about the first kind that is missing.
func (r *Resolver) NotFound() error {
	return &discovery.NotFoundError{APIVersion: r.Missing[0].APIVersion, Resource: r.Missing[0].Resource}
}

// selector selects parents (docs/reference/contract.md#s17.1). Both parts must match.
type selector struct {
	labels, annotations labels.Selector
}

// newSelector compiles selectors. Those that are nil select everything.
func newSelector(byLabels *metav1.LabelSelector, byAnnotations *v1alpha1.AnnotationSelector) (s selector, err error) {
	s = selector{labels: labels.Everything(), annotations: labels.Everything()}
	if byLabels != nil {
		if s.labels, err = metav1.LabelSelectorAsSelector(byLabels); err != nil {
			return s, fmt.Errorf("labelSelector: %w", err)
		}
	}
	if byAnnotations != nil {
		s.annotations, err = metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
			MatchLabels: byAnnotations.MatchAnnotations, MatchExpressions: byAnnotations.MatchExpressions,
		})
		if err != nil {
			return s, fmt.Errorf("annotationSelector: %w", err)
		}
	}
	return s, nil
}

// selects reports whether an object is selected.
func (s selector) selects(o *object.Object) bool {
	return s.labels.Matches(o.LabelSet()) && (s.annotations.Empty() || s.annotations.Matches(labels.Set(o.Annotations())))
}

// matches reports whether an object with some labels and annotations is selected.
func (s selector) matches(l, annotations labels.Set) bool {
	return s.labels.Matches(l) && s.annotations.Matches(annotations)
}

// Child finds a declared kind of children. The method, apply and force are those of its update strategy; empty and nil mean the defaults.
func (r *Resolver) Child(
	ctx context.Context, rule v1alpha1.ResourceRule, method v1alpha1.ChildUpdateMethod, apply v1alpha1.ChildApplyStrategy, force *bool,
	onParentDeletion v1alpha1.ParentDeletion,
) (child children.Rule, found bool, err error) {
	resource, found, err := r.Find(ctx, rule)
	if !found {
		return child, false, err
	}
	child = r.Shared.Options.childRule(resource, method, apply, force)
	child.Retain = onParentDeletion == v1alpha1.ParentDeletionRetain
	r.Children = append(r.Children, child)
	return child, true, nil
}

// Handlers tells which controllers of this process handle an object as their parent. It is safe for concurrent use; the zero value is
// ready, and nil knows none.
type Handlers struct {
	mu   sync.Mutex
	list []*handler
}

type handler struct {
	name    string
	handles func(parent.Key) bool
}

// Add adds a running controller under its name, as in "CompositeController name", until remove is called. handles must not block.
func (h *Handlers) Add(name string, handles func(parent.Key) bool) (remove func()) {
	if h == nil {
		return func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	added := &handler{name, handles}
	h.list = append(h.list, added)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.list = slices.DeleteFunc(h.list, func(each *handler) bool { return each == added })
	}
}

// Of returns the names of the controllers that handle an object, but for one.
func (h *Handlers) Of(key parent.Key, except string) []string {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	list := slices.Clone(h.list)
	h.mu.Unlock()
	var names []string
	for _, each := range list {
		if each.name != except && each.handles(key) {
			names = append(names, each.name)
		}
	}
	slices.Sort(names)
	return names
}
