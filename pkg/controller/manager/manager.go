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
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/barrier"
	objects "github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/dependencies"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/supervisor"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/informers/externalversions"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

// maxLag is how far the caches may be behind the engine's own writes before it makes fewer at once. A sync waits for its
// parent's writes no longer than [barrier.Limit], and must not come near that only because of how much is written.
const maxLag = barrier.Limit / 10

// Manager runs a host for every controller object.
type Manager struct {
	shared    *dependencies.Shared
	informers externalversions.SharedInformerFactory
}

// Config is what a manager needs.
type Config struct {
	// Loopback reaches the API server of this process. Required.
	Loopback *rest.Config
	// Cluster reaches the host cluster: parents, children, related objects, events. Required.
	Cluster *rest.Config
	// Options are the settings of the engine.
	Options dependencies.Options
}

// New returns a manager. It opens no connection before Run.
func New(ctx context.Context, c Config) (*Manager, error) {
	options := c.Options.WithDefaults()
	if _, err := labels.Parse(options.TargetLabelSelector); err != nil {
		return nil, fmt.Errorf("parsing the target label selector: %w", err)
	}
	eventrecorder.RegisterMetrics()
	webhook.RegisterMetrics()
	host := rest.CopyConfig(c.Cluster)
	host.QPS, host.Burst = options.ClientQPS, options.ClientBurst
	window, err := cluster.New(cluster.Options{
		Config: host, KeepManagedFields: options.HookManagedFields, Managers: options.Managers(),
	})
	if err != nil {
		return nil, err
	}
	recorder, err := eventrecorder.NewRecorder(ctx, eventrecorder.Options{Config: host, QPS: options.EventsQPS, Burst: options.EventsBurst})
	if err != nil {
		return nil, err
	}
	loopback := rest.CopyConfig(c.Loopback)
	loopback.QPS = -1
	loopback.Wrap(func(next http.RoundTripper) http.RoundTripper { return finishing{next} })
	own, err := versioned.NewForConfig(loopback)
	if err != nil {
		return nil, fmt.Errorf("creating a client for controller objects: %w", err)
	}
	revisions, err := objects.New(objects.Options{Config: loopback})
	if err != nil {
		return nil, err
	}
	informers := externalversions.NewSharedInformerFactoryWithOptions(own, 0,
		externalversions.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = options.TargetLabelSelector }))
	return &Manager{informers: informers, shared: &dependencies.Shared{
		Options: options, Cluster: window, Own: dependencies.Own{Cache: revisions, Client: own},
		Applier: apply.New(apply.Options{
			Client: window.Client, Try: window.Client.Try, Behind: func() bool { return window.Barrier.Lag() > maxLag },
		}),
		Recorder:       recorder,
		ResponseBudget: webhook.NewBudget(options.HookResponseBudget),
		EtagBudget:     webhook.NewBudget(options.HookEtagBudget),
	}}, nil
}

// Run hosts controllers until ctx ends, and returns when all of them have ended and their last events are sent.
func (m *Manager) Run(ctx context.Context) error {
	// What the hosts use must outlive them.
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	var windows sync.WaitGroup
	defer windows.Wait()
	defer stop()
	for _, run := range []func(context.Context){m.shared.Cluster.Run, m.shared.Own.Cache.Run, m.shared.Recorder.Run} {
		windows.Go(func() { run(base) })
	}

	hosts := newRoster(m.hostConfig())
	defer hosts.wait()
	watched := m.informers.Metacontroller().V1alpha1()
	for _, informer := range []cache.SharedIndexInformer{
		watched.CompositeControllers().Informer(), watched.DecoratorControllers().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler(ctx, hosts)); err != nil {
			return fmt.Errorf("watching controller objects: %w", err)
		}
	}
	m.informers.StartWithContext(ctx)
	defer m.informers.Shutdown()
	klog.FromContext(ctx).Info("Controller manager runs")
	<-ctx.Done()
	return nil
}

func (m *Manager) hostConfig() supervisor.Config {
	return supervisor.Config{
		Builder:   builder{shared: m.shared},
		Recorder:  m.shared.Recorder,
		Publisher: publisher{client: m.shared.Own.Client.MetacontrollerV1alpha1()},
		Keeper:    keeper{shared: m.shared},
		Changes:   m.shared.Cluster.Discovery.Subscribe,
	}
}

// handler passes changes of controller objects to the roster.
func handler(ctx context.Context, hosts *roster) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if d, ok := definitionOf(o); ok {
				hosts.put(ctx, d)
			}
		},
		UpdateFunc: func(_, o any) {
			if d, ok := definitionOf(o); ok {
				hosts.put(ctx, d)
			}
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if d, ok := definitionOf(o); ok {
				hosts.remove(d)
			}
		},
	}
}

func definitionOf(o any) (supervisor.Definition, bool) {
	switch o := o.(type) {
	case *v1alpha1.CompositeController:
		return supervisor.Definition{Composite: o}, true
	case *v1alpha1.DecoratorController:
		return supervisor.Definition{Decorator: o}, true
	}
	return supervisor.Definition{}, false
}
