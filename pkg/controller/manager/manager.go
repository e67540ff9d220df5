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

package manager

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	clustercache "github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/scheme"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/informers/externalversions"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// maxStaleness is how far the caches may be behind the engine's own writes before it makes fewer at once: an API server that has too much to do
// delivers the changes of others late, too.
const maxStaleness = 50 * time.Millisecond

// Manager runs a supervisor for every controller object that the target label selector selects.
type Manager struct {
	shared    *reconciler.Shared
	informers externalversions.SharedInformerFactory
	selector  labels.Selector
	// controllers are those that run, exclusions those that are not selected, and standby those that wait for the election.
	controllers, exclusions, standby *controllers
	elected                          <-chan struct{}
	// shuttingDown is closed when the process is to end.
	shuttingDown chan struct{}
}

// Config is what a manager needs.
type Config struct {
	// Loopback reaches who serves controller objects and their revisions: the API server of this process, or the cluster. Required.
	Loopback *rest.Config
	// Cluster reaches the cluster: parents, children, related objects, events. Required.
	Cluster *rest.Config
	// Options are the settings of the engine.
	Options reconciler.Options
	// Elected is closed when controllers may run. Until then their caches are filled, and nothing is called or written. Nil: they may at once.
	Elected <-chan struct{}
}

// New returns a manager. It opens no connection before Run.
func New(_ context.Context, c Config) (*Manager, error) {
	options := c.Options.WithDefaults()
	selector, err := labels.Parse(options.TargetLabelSelector)
	if err != nil {
		return nil, fmt.Errorf("parsing the target label selector: %w", err)
	}
	metrics.Register()
	config := rest.CopyConfig(c.Cluster)
	config.QPS, config.Burst = options.ClientQPS, options.ClientBurst
	reached, err := cluster.New(cluster.Options{
		Config: config, KeepManagedFields: options.HookManagedFields, Managers: options.Managers(), KindsRecheck: options.KindsRecheck,
	})
	if err != nil {
		return nil, err
	}
	reviews, err := authorizationclient.NewForConfig(reached.Config())
	if err != nil {
		return nil, fmt.Errorf("creating a client for reviews of rights: %w", err)
	}
	recorder, err := events.NewRecorder(events.Options{Config: config, QPS: options.EventsQPS, Burst: options.EventsBurst})
	if err != nil {
		return nil, err
	}
	own, err := reachOwn(c.Loopback)
	if err != nil {
		return nil, err
	}
	waiting, shuttingDown := &expectations.Registry{}, make(chan struct{})
	informers := externalversions.NewSharedInformerFactoryWithOptions(own.Client, 0, externalversions.WithTransform(defaulted))
	m := &Manager{elected: c.Elected, shuttingDown: shuttingDown, informers: informers, selector: selector, shared: &reconciler.Shared{
		Options: options, Cluster: reached, Own: own, Expectations: waiting,
		Applier: apply.New(apply.Options{
			Client: reached.Client, Behind: func() bool { return waiting.Staleness() > maxStaleness },
		}),
		Rights:         access.OfCluster(reviews, reached.Client),
		Recorder:       recorder,
		Handlers:       &reconciler.Handlers{},
		RequestBudget:  fairqueue.Bytes(options.HookRequestBudget),
		History:        history.NewRing(options.SyncHistoryBytes),
		ResponseBudget: fairqueue.Bytes(options.HookResponseBudget),
		EtagBudget:     fairqueue.Bytes(options.HookEtagBudget),
		Compiling:      make(chan struct{}, 1),
		ShuttingDown:   shuttingDown,
	}}
	writer := objects{client: own.Client.MetacontrollerV1alpha1(), pruned: &sync.Once{}}
	supervised := supervisorConfig{
		Builder: builder{m.shared}, Recorder: recorder, Objects: writer, Changes: reached.Discovery.Subscribe,
		Finalized: func(ctx context.Context, resource schema.GroupResource, d reconciler.Definition) ([]FinalizedParent, error) {
			return finalizedParents(ctx, reached, resource, d)
		},
	}
	m.controllers = newControllers(func(d reconciler.Definition) runner { return newSupervisor(supervised, d) })
	m.controllers.ended = func(id identity, uid types.UID) { m.shared.History.Close(id.kind+" "+id.name, uid) }
	excluding := &excluder{
		selector: options.TargetLabelSelector, publish: writer.PublishStatus, await: m.controllers.await, writing: make(chan struct{}, 1),
	}
	m.exclusions = newControllers(excluding.start)
	m.standby = newStandby(m.open, reached.Discovery.Subscribe)
	return m, nil
}

// defaulted fills in the defaults of a controller object: an API server that serves it by other definitions may not have.
func defaulted(o any) (any, error) {
	if object, ok := o.(runtime.Object); ok {
		scheme.Scheme.Default(object)
	}
	return o, nil
}

// reachOwn returns what reaches controller objects and their revisions.
func reachOwn(loopback *rest.Config) (own reconciler.Own, err error) {
	config := rest.CopyConfig(loopback)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return finishing{next} })
	if own.Client, err = versioned.NewForConfig(config); err != nil {
		return own, fmt.Errorf("creating a client for controller objects: %w", err)
	}
	own.Cache, err = clustercache.New(clustercache.Options{Config: config})
	return own, err
}

// Run runs controllers until ctx ends, and returns when all of them have ended and their last events are sent. It is called once.
func (m *Manager) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { close(m.shuttingDown) })()
	// What the controllers use must outlive them.
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop()
	for _, run := range []func(context.Context){m.shared.Cluster.Run, m.shared.Own.Cache.Run, m.shared.Recorder.Run} {
		serving.Go(func() { run(base) })
	}

	defer metrics.ExposeCache(m.shared.Cluster.Cache.Sizes)()
	defer metrics.ExposeCache(m.shared.Own.Cache.Sizes)()
	metrics.ObserveRequestBudget(m.shared.RequestBudget.Used)
	metrics.ObserveResponseBudget(m.shared.ResponseBudget.Used)

	watched := m.informers.Metacontroller().V1alpha1()
	informers := []cache.SharedIndexInformer{watched.CompositeControllers().Informer(), watched.DecoratorControllers().Informer()}
	ctx, cancel := context.WithCancel(ctx)
	defer m.informers.Shutdown()
	defer cancel()
	stopWaiting, err := m.wait(ctx, informers)
	defer stopWaiting()
	if err != nil || ctx.Err() != nil {
		return err
	}
	defer metrics.EngineRuns()()
	defer m.exclusions.wait()
	defer m.controllers.wait()
	for _, informer := range informers {
		if _, err := informer.AddEventHandler(m.handler(ctx, func(d reconciler.Definition) { m.put(ctx, d) }, m.remove)); err != nil {
			cancel()
			return fmt.Errorf("watching controller objects: %w", err)
		}
	}
	m.informers.StartWithContext(ctx)
	klog.FromContext(ctx).Info("Controller manager runs")
	<-ctx.Done()
	return nil
}

// handler calls put and remove as controller objects change.
func (m *Manager) handler(ctx context.Context, put, remove func(reconciler.Definition)) cache.ResourceEventHandler {
	guarded := func(o any, act func(reconciler.Definition)) {
		_ = recovery.Call(ctx, "handling a change of a controller object", func() error { // It logs a panic.
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if d, ok := definitionOf(o); ok {
				act(d)
			}
			return nil
		})
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { guarded(o, put) },
		UpdateFunc: func(_, o any) { guarded(o, put) },
		DeleteFunc: func(o any) { guarded(o, remove) },
	}
}

// put takes note of the latest state of a controller object.
func (m *Manager) put(ctx context.Context, d reconciler.Definition) {
	run, leave := m.controllers, m.exclusions
	if !m.selector.Matches(labels.Set(d.Meta.Labels)) {
		run, leave = leave, run
	}
	leave.remove(identityOf(d))
	run.put(ctx, d)
}

// remove takes note that a controller object is gone.
func (m *Manager) remove(d reconciler.Definition) {
	m.exclusions.remove(identityOf(d))
	m.controllers.remove(identityOf(d))
}

func definitionOf(o any) (reconciler.Definition, bool) {
	switch o := o.(type) {
	case *v1alpha1.CompositeController:
		return reconciler.OfComposite(o), true
	case *v1alpha1.DecoratorController:
		return reconciler.OfDecorator(o), true
	}
	return reconciler.Definition{}, false
}

// writeLimit is how long a write to the server's own API may take.
const writeLimit = 30 * time.Second

// writeGrace is how long a write may take after its context has ended. It is shorter than the grace of a shutdown.
const writeGrace = 3 * time.Second

// finishing is a transport to the server's own API that lets writes finish whose context ends meanwhile, as that of a controller
// does that is stopped. The API server would log an error for each that is broken off. None takes longer than writeLimit.
type finishing struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (f finishing) RoundTrip(r *http.Request) (response *http.Response, err error) {
	outer := r.Context()
	if r.Method == http.MethodGet || outer.Err() != nil {
		// Informers of client-go ask on goroutines of their own, whose panics would end the process.
		err = recovery.Call(outer, "reading "+r.URL.Path, func() (err error) {
			response, err = f.next.RoundTrip(r) //nolint:bodyclose // The caller closes it.
			return err
		})
		return response, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(outer), writeLimit)
	stop := context.AfterFunc(outer, func() { time.AfterFunc(writeGrace, cancel) })
	end := func() {
		stop()
		cancel()
	}
	response, err = f.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, err //nolint:wrapcheck // A RoundTripper passes errors on as they are.
	}
	response.Body = body{response.Body, end}
	return response, nil
}

// body ends the context of its request when it is closed.
type body struct {
	io.ReadCloser

	end func()
}

// Close implements io.Closer.
func (b body) Close() error {
	defer b.end()
	return b.ReadCloser.Close() //nolint:wrapcheck // It is the transport's own.
}
