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

	// Registers the metrics of requests to the cluster.
	_ "k8s.io/component-base/metrics/prometheus/restclient"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/manager"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// runControllers creates the controller manager that the flags configure.
func runControllers(ctx context.Context, c EngineConfig) (Engine, error) {
	destinations, err := c.Controllers.Webhooks.Destinations(c.Port)
	if err != nil {
		return nil, err
	}
	return manager.New(ctx, manager.Config{
		Loopback: c.Loopback,
		Cluster:  c.Cluster,
		Elected:  c.Elected,
		Options: reconciler.Options{
			Workers:             c.Controllers.Workers,
			CacheFlushInterval:  c.Controllers.CacheFlushInterval,
			ClientQPS:           c.Controllers.ClientQPS,
			ClientBurst:         c.Controllers.ClientBurst,
			EventsQPS:           c.Controllers.EventsQPS,
			EventsBurst:         c.Controllers.EventsBurst,
			TargetLabelSelector: c.Controllers.TargetLabelSelector,
			ServerSideApply:     c.Controllers.ApplyStrategy == options.ServerSideApply,
			FieldManager:        c.Controllers.FieldManager,
			TracerProvider:      c.TracerProvider,
			HookManagedFields:   c.Controllers.HookManagedFields,
			HookResponseLimit:   c.Controllers.HookResponseLimit.Value(),
			HookRequestBudget:   c.Controllers.HookRequestBudget.Value(),
			HookResponseBudget:  c.Controllers.HookResponseBudget.Value(),
			HookEtagBudget:      c.Controllers.HookEtagBudget.Value(),
			HookDestinations:    destinations,
			HookRefuseRedirects: c.Controllers.Webhooks.Redirects == options.NoRedirects,
			SyncHistoryBytes:    syncHistory(c.Controllers.SyncHistoryBytes.Value()),
			ServerNamespace:     c.Controllers.Namespace,
		},
	})
}

// syncHistory returns the option of the engine for the value of the flag, of which 0 says that syncs are not recorded.
func syncHistory(flag int64) int64 {
	if flag == 0 {
		return -1
	}
	return flag
}
