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

package cluster

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/credentials"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
)

// Options configure a Cluster.
type Options struct {
	// Config reaches the cluster. Its QPS and burst limit the requests of all parts together; a QPS of 0 or less is no limit.
	Config *rest.Config
	// KeepManagedFields keeps metadata.managedFields in cached objects, and so in what hooks are sent.
	KeepManagedFields bool
	// Managers are the prefixes of the field managers whose managedFields objects keep. Empty: of none.
	Managers []string
	// KindsRecheck is how often kinds are asked for of which no object of the cluster tells. Default: every minute.
	KindsRecheck time.Duration
}

// Cluster is the cluster as the engine sees it.
type Cluster struct {
	// Cache has the objects that are watched.
	Cache *cache.Cache
	// Discovery knows the kinds that are served.
	Discovery *discovery.Discovery
	// Client writes.
	Client *client.Client
	// Credentials has the Secrets and ConfigMaps that hooks refer to.
	Credentials *credentials.Store

	config *rest.Config
}

// New returns a cluster. No connection is opened before Run.
func New(o Options) (*Cluster, error) {
	o.Config = limited(o.Config)
	objects, err := cache.New(cache.Options{Config: o.Config, KeepManagedFields: o.KeepManagedFields, Managers: o.Managers})
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.New(o.Config, objects)
	if err != nil {
		return nil, err
	}
	if o.KindsRecheck > 0 {
		kinds.Recheck(o.KindsRecheck)
	}
	writer, err := client.New(o.Config)
	if err != nil {
		return nil, err
	}
	secrets, err := credentials.New(o.Config, nil)
	if err != nil {
		return nil, err
	}
	return &Cluster{Cache: objects, Discovery: kinds, Client: writer.Knowing(o.Managers...), Credentials: secrets, config: o.Config}, nil
}

// Config returns the configuration of all clients, for further ones that share the connections and their limit. It must not be changed.
func (c *Cluster) Config() *rest.Config { return c.config }

// As returns the cluster for somebody else, who writes and reads credentials in it. What is watched and known of kinds is that of c, and
// so are the connections and their limit. The caller runs its Credentials.
func (c *Cluster) As(i client.Identity) (*Cluster, error) {
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: i.User}
	secrets, err := credentials.New(config, nil)
	if err != nil {
		return nil, err
	}
	return &Cluster{Cache: c.Cache, Discovery: c.Discovery, Client: c.Client.As(i), Credentials: secrets, config: config}, nil
}

// limited returns the configuration with one limiter, or none, for all clients that are made of it.
func limited(config *rest.Config) *rest.Config {
	shared := rest.CopyConfig(config)
	shared.RateLimiter = client.Limiter(config)
	if shared.RateLimiter == nil {
		shared.QPS = -1
	}
	return shared
}

// Run watches until ctx ends, and returns when everything that it started has ended.
func (c *Cluster) Run(ctx context.Context) {
	var parts sync.WaitGroup
	for _, run := range []func(context.Context){c.Cache.Run, c.Discovery.Run, c.Credentials.Run} {
		parts.Go(func() { run(ctx) })
	}
	parts.Wait()
}
