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

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/manager"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/leaderelection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// Options are what an engine runs, and how.
type Options struct {
	// Composites and Decorators are the controllers. One of either is required; those of one kind differ in their names.
	Composites []Composite
	Decorators []Decorator
	// Lease is the name of the Lease that the process must hold to run controllers, so that of several processes one does. Others fill their
	// caches and wait. Empty: there is no election, and only one process may run.
	Lease string
	// Namespace is that of the Lease, and of the ControllerRevisions of cluster-scoped parents. It must exist. Required with Lease; default
	// metacontroller.
	Namespace string
	// OnStatus is called with the status of a controller, whose kind and name are given, whenever its conditions, counters or errors change: what
	// kubectl shows of a controller object that an API server stores. It must return soon. Nil: the log says when Ready changes, and which
	// resources the cluster does not serve.
	OnStatus func(kind, name string, status v1alpha1.ControllerStatus)
}

// Engine runs the controllers of a program. Make it with [New].
type Engine struct {
	manager  *manager.Manager
	warnings []string
	// elector is nil if there is no election. elected is closed when controllers may run.
	elector *leaderelection.Elector
	elected chan struct{}
	// started says that Run was called, and running that it has not returned.
	started, running atomic.Bool
	// lost is when the Lease was lost, nil if it was not.
	lost atomic.Pointer[time.Time]
}

// New returns an engine for the cluster that config reaches, with the rights of its user. QPS and Burst of config limit the requests to the
// cluster where they are greater than 0. New asks the cluster for nothing. The error has all that is wrong with the controllers.
func New(config *rest.Config, options Options) (*Engine, error) {
	if config == nil {
		return nil, errors.New("there is no rest.Config, which says how the cluster is reached")
	}
	ctx := context.Background() //nolint:forbidigo // What is called here waits for nothing.
	d, err := define(ctx, options.Composites, options.Decorators)
	if err != nil {
		return nil, err
	}
	cluster := rest.CopyConfig(config)
	cluster.DisableCompression = true // Compressing what a controller reads takes the API server longer than sending it.
	e := &Engine{warnings: d.warnings}
	if options.Lease != "" {
		if e.elector, err = elect(cluster, options); err != nil {
			return nil, err
		}
		e.elected = make(chan struct{})
		cluster.Wrap(e.elector.Fence().Wrap)
	}
	stored, err := newObjects(d.objects, options.OnStatus)
	if err != nil {
		return nil, err
	}
	own := rest.CopyConfig(cluster)
	own.Wrap(stored.wrap)
	e.manager, err = manager.New(ctx, manager.Config{
		Loopback: own, Cluster: cluster, Elected: e.elected,
		Options: reconciler.Options{
			ClientQPS: config.QPS, ClientBurst: config.Burst, HookTransport: d.functions, ServerNamespace: options.Namespace,
			SyncHistoryBytes: -1, // Nobody could ask for it.
		},
	})
	return e, err
}

// The times of the election are those of Kubernetes' own controllers.
const leaseDuration, renewDeadline, retryPeriod = 15 * time.Second, 10 * time.Second, 2 * time.Second

// elect returns what elects this process.
func elect(cluster *rest.Config, options Options) (*leaderelection.Elector, error) {
	if options.Namespace == "" {
		return nil, errors.New("a Lease needs a Namespace")
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the name of this host: %w", err)
	}
	config := rest.CopyConfig(cluster)
	config.QPS = -1 // Renewals wait for no other request.
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the leader election: %w", err)
	}
	return leaderelection.New(leaderelection.Config{
		Client: client, Namespace: options.Namespace, Name: options.Lease, Identity: host + "_" + string(uuid.NewUUID()),
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
	})
}

// Run runs the controllers until ctx ends, and returns when all that it started has ended: syncs under way may finish for some seconds, and the
// Lease is released. An error says that the controllers ended without that, and the process should: the Lease was lost, for one. Run is called once.
func (e *Engine) Run(ctx context.Context) error {
	if e.started.Swap(true) {
		return errors.New("the engine was run before: make another one")
	}
	e.running.Store(true)
	defer e.running.Store(false)
	for _, w := range e.warnings {
		klog.FromContext(ctx).Info("A controller may not do what was meant", "warning", w)
	}
	if e.elector == nil {
		return e.manager.Run(ctx)
	}
	return e.runElected(ctx)
}

// runElected runs the manager, which waits for the term of this process, and ends with it.
func (e *Engine) runElected(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	standing, withdraw := context.WithCancel(ctx)
	defer withdraw()
	ended := make(chan error, 1)
	go func() {
		defer withdraw()
		ended <- recovery.Call(running, "running controllers", func() error { return e.manager.Run(running) })
	}()
	var failed, lost error
	waited := false
	err := e.elector.Stand(standing, func(term context.Context) {
		close(e.elected)
		<-term.Done()
		if errors.Is(context.Cause(term), leaderelection.ErrLost) {
			lost = leaderelection.ErrLost
			e.lost.Store(new(time.Now()))
		}
		stop()
		failed, waited = <-ended, true // The Lease is held until nothing is written any more.
	})
	stop()
	if !waited {
		failed = <-ended
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The next process cannot run controllers at once")
	}
	return cmp.Or(failed, lost)
}

// stopLimit is how long controllers may take to stop when the Lease was lost: another process runs them then.
const stopLimit = queue.Grace + time.Second

// Healthy returns nil while Run runs, also while it waits for the Lease. When the Lease was lost and a function does not return, so that Run does not
// either, it returns an error after some seconds. It has the form of a checker for a liveness probe.
func (e *Engine) Healthy(*http.Request) error {
	if !e.running.Load() {
		return errors.New("the engine does not run")
	}
	if lost := e.lost.Load(); lost != nil && time.Since(*lost) > stopLimit {
		return fmt.Errorf("the controllers have not stopped %s after %w: a function does not return when its context ends", stopLimit, leaderelection.ErrLost)
	}
	return nil
}

// Collector returns what collects the metrics of all engines of the process, which docs/reference/metrics.md lists, for a registry of the
// program. The registry of k8s.io/component-base has them without that.
func Collector() prometheus.Collector { return metrics.Collector() }
