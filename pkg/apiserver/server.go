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
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	generatedopenapi "github.com/metacontroller/metacontroller-apiserver/pkg/generated/openapi"
	"github.com/metacontroller/metacontroller-apiserver/pkg/migration"
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
	// Lease, NAMESPACE/NAME, is that without which this server runs no controllers. Empty: it needs none, or runs none.
	Lease string
}

// CompletedConfig is a configuration from which a Server can be made. It comes from Config.Complete alone.
type CompletedConfig struct {
	config  Config
	generic genericapiserver.CompletedConfig
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
	return CompletedConfig{*c, c.Generic.Complete()}
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
	storage, err := registry.NewStorage(Scheme, outages{c.generic.RESTOptionsGetter}, c.config.Inspection)
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
	if c.config.ProcessMetrics {
		serveProcessMetrics(s.Generic)
	}
	s.openDoor(storage, c)
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

// openDoor serves the stores as they are, for the command migrate.
func (s *Server) openDoor(storage *registry.Storage, c CompletedConfig) {
	running := func() bool {
		if c.config.Inspection.Engine == nil {
			return false
		}
		_, here := c.config.Inspection.Engine.Engine()
		return here
	}
	door := migration.NewDoor(Scheme, map[string]*genericregistry.Store{
		"compositecontrollers": storage.CompositeControllers.Objects.Store.Store,
		"decoratorcontrollers": storage.DecoratorControllers.Objects.Store.Store,
		"controllerrevisions":  storage.ControllerRevisions.Store,
	}, storage.Standby(c.config.Inspection), c.generic.Authorization.Authorizer, running)
	mux := s.Generic.Handler.NonGoRestfulMux
	door.Lease = c.config.Lease
	mux.UnlistedHandle(migration.DoorPath, door)
	mux.UnlistedHandlePrefix(migration.DoorPath+"/", door)
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

var (
	// Scheme holds the types of the group, and those that every API server answers with.
	Scheme = newScheme()
	// Codecs are the serializers of Scheme.
	Codecs = serializer.NewCodecFactory(Scheme)
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	// The generic server reads options such as ListOptions in this version.
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return scheme
}

// jsonOnly is what the group's endpoints speak: JSON and YAML.
//
// Protobuf is taken off, because the types do not implement it. The generic server would offer it all the same, and a
// client that asks for it first, as the namespace controller does, would get errors instead of the next best
// (kubernetes/kubernetes#86666).
type jsonOnly struct {
	runtime.NegotiatedSerializer
}

// SupportedMediaTypes are those of the wrapped serializer without protobuf.
func (j jsonOnly) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(j.NegotiatedSerializer.SupportedMediaTypes()),
		func(info runtime.SerializerInfo) bool { return info.MediaType == runtime.ContentTypeProtobuf })
}

// DecoderToVersion returns a decoder whose errors name the field.
func (j jsonOnly) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return durationNaming{j.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

const metricsPath = "/metrics"

// serveProcessMetrics replaces /metrics by a handler that gathers the default Prometheus registry too.
func serveProcessMetrics(s *genericapiserver.GenericAPIServer) {
	mux := s.Handler.NonGoRestfulMux
	if !slices.Contains(mux.ListedPaths(), metricsPath) {
		return // switched off
	}
	mux.Unregister(metricsPath)
	both := gatherers{legacyregistry.DefaultGatherer, prometheus.DefaultGatherer}
	mux.Handle(metricsPath, promhttp.HandlerFor(both, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
}

// gatherers gathers from all; of metrics with the same name, those of the first count. Both registries describe the process
// and the Go runtime.
type gatherers []prometheus.Gatherer

// Gather returns the metrics sorted by name.
func (g gatherers) Gather() ([]*dto.MetricFamily, error) {
	families := map[string]*dto.MetricFamily{}
	var failed error
	for _, gatherer := range g {
		found, err := gatherer.Gather()
		if err != nil && failed == nil {
			failed = err
		}
		for _, family := range found {
			if _, known := families[family.GetName()]; !known {
				families[family.GetName()] = family
			}
		}
	}
	return slices.SortedFunc(maps.Values(families), func(a, b *dto.MetricFamily) int {
		return strings.Compare(a.GetName(), b.GetName())
	}), failed
}
