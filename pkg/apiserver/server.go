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

package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	generatedopenapi "github.com/metacontroller/metacontroller-apiserver/pkg/generated/openapi"
	registry "github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/inspect"
)

// Name is the name of the server in logs and in its OpenAPI documents.
const Name = "metacontroller-apiserver"

// Config is everything that a Server needs. Create it with NewConfig.
type Config struct {
	// Generic is the configuration of the generic API server.
	Generic *genericapiserver.RecommendedConfig
	// ProcessMetrics adds the metrics of the process's default Prometheus registry to /metrics: those of an etcd that runs
	// in this process.
	ProcessMetrics bool
	// Inspection is what the endpoints need that say what controllers do.
	Inspection inspect.Config
}

type completedConfig struct {
	generic        genericapiserver.CompletedConfig
	processMetrics bool
	inspection     inspect.Config
}

// CompletedConfig is a configuration from which a Server can be made. It comes from Config.Complete alone.
type CompletedConfig struct {
	*completedConfig
}

// NewConfig returns a configuration that serves the group's OpenAPI documents. The caller's options fill the rest.
func NewConfig() *Config {
	generic := genericapiserver.NewRecommendedConfig(Codecs)
	definitions := generatedopenapi.GetOpenAPIDefinitions
	generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, openapi.NewDefinitionNamer(Scheme))
	generic.OpenAPIConfig.Info.Title = Name
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, openapi.NewDefinitionNamer(Scheme))
	generic.OpenAPIV3Config.Info.Title = Name
	config := &Config{Generic: generic}
	generic.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		api = leadElsewhere(warnOfOldStatus(api, config.Inspection.Engine), config.Inspection.Engine)
		api = refuseDiscovery(nameDurations(api, c.MaxRequestBodyBytes), c.ReadyzChecks)
		return genericapiserver.DefaultBuildHandlerChain(api, c)
	}
	return config
}

// Complete fills in what can be derived. It changes the receiver, which is of no use any more afterwards.
func (c *Config) Complete() CompletedConfig {
	return CompletedConfig{&completedConfig{generic: c.Generic.Complete(), processMetrics: c.ProcessMetrics, inspection: c.Inspection}}
}

// Server is the API server. Generic is prepared and run by the caller.
type Server struct {
	// Generic serves.
	Generic *genericapiserver.GenericAPIServer
}

// New builds the server with all its endpoints. Its stores connect to etcd from now on.
func (c CompletedConfig) New() (*Server, error) {
	generic, err := c.generic.New(Name, genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("building the generic server: %w", err)
	}
	s := &Server{Generic: generic}
	if err := s.install(c); err != nil {
		generic.Destroy()
		return nil, err
	}
	return s, nil
}

func (s *Server) install(c CompletedConfig) error {
	storage, err := registry.NewStorage(Scheme, outages{c.generic.RESTOptionsGetter}, c.inspection)
	if err != nil {
		return err
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(v1alpha1.GroupName, Scheme, runtime.NewParameterCodec(Scheme), Codecs)
	// Not before: NewDefaultAPIGroupInfo replaces the serializer that it is given.
	group.NegotiatedSerializer = jsonOnly{group.NegotiatedSerializer}
	group.VersionedResourcesStorageMap[v1alpha1.SchemeGroupVersion.Version] = storage.Resources()
	if err := s.Generic.InstallAPIGroup(&group); err != nil {
		return fmt.Errorf("installing API group %s: %w", v1alpha1.GroupName, err)
	}
	if c.processMetrics {
		serveProcessMetrics(s.Generic)
	}
	// It logs when the watch caches are filled, and passes after --storage-initialization-timeout whether they are or not. Only kube-apiserver has it
	// by itself.
	hook := s.Generic.StorageReadinessHook.Hook
	if err := s.Generic.AddPostStartHook("storage-readiness", hook); err != nil {
		return fmt.Errorf("adding storage readiness: %w", err)
	}
	if err := s.Generic.AddReadyzChecks(filled(storage.Resources())); err != nil {
		return fmt.Errorf("adding the readiness of watch caches: %w", err)
	}
	return nil
}

// filled fails until all watch caches were filled once, as they never are while an object cannot be read. What fails them later is no reason to
// take the server, which has other objects, out of the cluster.
func filled(endpoints map[string]rest.Storage) healthz.HealthChecker {
	var once atomic.Bool
	return healthz.NamedCheck("watch-caches", func(*http.Request) error {
		if once.Load() {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(endpoints)) {
			store, ok := endpoints[name].(rest.StorageWithReadiness)
			if !ok {
				continue
			}
			if err := store.ReadinessCheck(); err != nil {
				return fmt.Errorf("the watch cache of %s is not filled: %w", name, err)
			}
		}
		once.Store(true)
		return nil
	})
}
