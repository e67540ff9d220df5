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

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	registry "github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// newServer builds the API server and adds the engine to it. Without create, controllers are stored and not run.
func newServer(ctx context.Context, o options.Completed, etcd *embeddedetcd.Server, create NewEngine, fail func(error),
) (*genericapiserver.GenericAPIServer, error) {
	config, err := newConfig(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := registry.CheckReadable(ctx, &o.Recommended.Etcd.StorageConfig, config.Generic.ResourceTransformers); err != nil {
		return nil, err
	}
	if etcd != nil {
		// By now --etcd-servers names it, as if it were another one.
		config.ProcessMetrics = true
		config.Generic.AddHealthChecks(storageCheck(etcd))
	}
	if serving := config.Generic.SecureServing; serving != nil && serving.Cert != nil {
		exposeCertificate(serving.Cert)
	}
	cluster, err := engineCluster(o.Recommended, config.Generic.ClientConfig)
	if err != nil {
		return nil, err
	}
	config.Inspection.Engine = &inspection.Link{}
	engine := EngineConfig{
		Cluster: cluster, Controllers: *o.Controllers, Port: o.Recommended.SecureServing.BindPort, Inspection: config.Inspection.Engine,
	}
	if o.Recommended.Traces.ConfigFile != "" {
		config.Generic.TracerProvider = tracing.LimitFlush(config.Generic.TracerProvider, tracing.FlushLimit)
		engine.TracerProvider = config.Generic.TracerProvider
	}
	// It says that no engine runs, even where none ever does.
	metrics.Register()
	var runner *engineRunner
	if create == nil || !o.Controllers.Enabled {
		klog.FromContext(ctx).Info("Controllers are stored, but not run, because of --enable-controllers=false")
		engine.Inspection.Explain(func() (string, bool) {
			return "this server does not run controllers, because of --enable-controllers=false, and nothing is reconciled unless another one does", false
		})
	} else {
		runner = &engineRunner{create: create, config: engine, fail: fail}
		if err := runner.elect(o, cluster, etcd != nil); err != nil {
			return nil, err
		}
	}
	server, err := config.Complete().New()
	if err != nil {
		return nil, err
	}
	if runner == nil {
		return server.Generic, nil
	}
	if err := runner.add(ctx, server.Generic); err != nil {
		server.Generic.Destroy()
		return nil, err
	}
	return server.Generic, nil
}
