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

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
)

// runOnDefinitions runs controllers that the cluster serves by CustomResourceDefinitions, until ctx ends, and then returns nil
// (docs/design/0026-definitions.md). Of the API server it has nothing.
func runOnDefinitions(ctx context.Context, o options.Completed, create NewEngine) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var owned sync.WaitGroup
	defer owned.Wait()
	fail := func(err error) { stop(&failure{err}) }

	var ready atomic.Bool
	closeAll, err := serveApart(running, o.API, &ready, fail, &owned)
	if err != nil {
		return err
	}
	defer closeAll()
	cluster, err := reachCluster(running, o.Recommended.CoreAPI)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(unlimited(cluster))
	if err != nil {
		return fmt.Errorf("creating a client that finds out who serves controllers: %w", err)
	}
	if err := awaitFit(running, client); err != nil {
		return unlessEnded(ctx, err)
	}
	owned.Go(func() { watchFit(running, client, fail) })
	metrics.Register()
	runner := &engineRunner{create: create, fail: fail, config: EngineConfig{
		Cluster: named(cluster), Controllers: *o.Controllers, Port: o.API.Port(), Inspection: &inspection.Link{},
	}}
	if err := runner.elect(o, runner.config.Cluster, false); err != nil {
		return err
	}
	runner.prepare(ctx)
	runner.start(unlimited(cluster)) //nolint:contextcheck // The engines have a context of their own.
	ready.Store(true)
	<-running.Done()
	err = runner.shutdown()
	if failed, ok := errors.AsType[*failure](context.Cause(running)); ok {
		return failed.error
	}
	return err
}

// served are the resources without which no controller can run.
var served = []string{"compositecontrollers", "decoratorcontrollers", "controllerrevisions"}

// errServer says that the cluster leads the group to an API server.
var errServer = errors.New("the cluster leads metacontroller.k8s.io to an API server, which runs the controllers itself: with --api=definitions the group " +
	"has CustomResourceDefinitions. Start without --api=definitions, or delete the APIService v1alpha1.metacontroller.k8s.io")

// fit returns why controllers cannot run on what the cluster serves, nil if they can.
func fit(ctx context.Context, client discovery.DiscoveryInterface) error {
	list, err := discovery.ToDiscoveryInterfaceWithContext(client).ServerResourcesForGroupVersionWithContext(ctx, v1alpha1.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		list, err = &metav1.APIResourceList{}, nil
	}
	if err != nil {
		return fmt.Errorf("asking who serves controllers: %w", err)
	}
	if registration.ByServer(list.APIResources) {
		return errServer
	}
	missing := slices.DeleteFunc(slices.Clone(served), func(resource string) bool {
		return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource })
	})
	if len(missing) > 0 {
		return fmt.Errorf("the cluster serves no %s of metacontroller.k8s.io/v1alpha1: install the definitions, Metacontroller's or those of "+
			"artifacts/definitions", strings.Join(missing, ", "))
	}
	return nil
}

// awaitFit waits until controllers can run on what the cluster serves. The error is the cause of ctx.
func awaitFit(ctx context.Context, client discovery.DiscoveryInterface) error {
	return ask(ctx, func() error { return fit(ctx, client) }, "No controllers run yet; waiting for their definitions")
}

// fitInterval is how often a process looks whether the group is still served by definitions: an API server would run the controllers, too.
const fitInterval = 10 * time.Second

// watchFit calls fail when an API server takes over the group, until ctx ends.
func watchFit(ctx context.Context, client discovery.DiscoveryInterface, fail func(error)) {
	_ = wait.PollUntilContextCancel(ctx, fitInterval, false, func(ctx context.Context) (bool, error) { // The error is that ctx ended.
		err := fit(ctx, client)
		if errors.Is(err, errServer) {
			fail(err)
		}
		return errors.Is(err, errServer), nil
	})
}

// serveApart serves metrics, probes and profiles where the options say. What it starts ends with closeAll, and owned waits for it.
func serveApart(ctx context.Context, o *options.API, ready *atomic.Bool, fail func(error), owned *sync.WaitGroup) (closeAll func(), err error) {
	var servers []*http.Server
	closeAll = func() {
		for _, s := range servers {
			_ = s.Close() // Nobody loses anything.
		}
	}
	for address, handler := range handlers(o, ready) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("serving metrics, probes or profiles: %w", err)
		}
		s := &http.Server{Handler: handler, ReadHeaderTimeout: askTimeout}
		servers = append(servers, s)
		owned.Go(func() {
			if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				fail(fmt.Errorf("serving at %s: %w", address, err))
			}
		})
	}
	return closeAll, nil
}

// handlers returns what is served at each address.
func handlers(o *options.API, ready *atomic.Bool) map[string]*http.ServeMux {
	muxes := map[string]*http.ServeMux{}
	handle := func(address, path string, h http.HandlerFunc) {
		if address == options.Off {
			return
		}
		if muxes[address] == nil {
			muxes[address] = http.NewServeMux()
		}
		muxes[address].HandleFunc(path, h)
	}
	ok := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }
	handle(o.MetricsAddress, "/metrics", legacyregistry.Handler().ServeHTTP)
	handle(o.ProbesAddress, "/livez", ok)
	handle(o.ProbesAddress, "/healthz", ok)
	handle(o.ProbesAddress, "/readyz", func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() {
			http.Error(w, "the cluster or the definitions of controllers are waited for; the log says more", http.StatusServiceUnavailable)
			return
		}
		ok(w, r)
	})
	for path, h := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		handle(o.ProfilesAddress, path, h)
	}
	return muxes
}
