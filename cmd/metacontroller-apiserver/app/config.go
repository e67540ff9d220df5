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
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/clusterwarnings"
	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/escalation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	registry "github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// newConfig turns options into the configuration of the API server. The storage must run and the serving certificate must
// exist.
func newConfig(ctx context.Context, o options.Completed) (*apiserver.Config, error) {
	recommended, plugins, features := *o.Recommended, *o.Recommended.Admission, *o.Recommended.Features
	recommended.Features = &features
	recommended.Admission = nil // Below, because it needs the version of the Kubernetes libraries.
	config := apiserver.NewConfig()
	generic := config.Generic
	if err := o.ServerRun.ApplyTo(&generic.Config); err != nil {
		return nil, fmt.Errorf("configuring the server: %w", err)
	}
	// The generic server asks for the gates of its own library.
	generic.FeatureGate = o.Registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)

	cluster, err := clusterConfig(o.Recommended.CoreAPI)
	if err != nil {
		return nil, err
	}
	if err := disableUnusable(ctx, cluster, &plugins, &features); err != nil {
		return nil, err
	}
	if err := recommended.ApplyTo(generic); err != nil {
		return nil, fmt.Errorf("configuring the server: %w", err)
	}
	own, err := ownPlugins(o, generic)
	if err != nil {
		return nil, err
	}
	if !o.Admission.EscalationCheck {
		klog.FromContext(ctx).Info("Every author of a controller has the rights of this server, because of --escalation-check=false")
	}
	if err := applyAdmission(generic, &plugins, o.Registry, own...); err != nil {
		return nil, err
	}
	config.Inspection.PlanWarnings = o.Admission.PlanWarnings
	config.Inspection.Loopback = unlimited(generic.LoopbackClientConfig)
	if config.Inspection.Reviews, err = reviewClient(o, generic.ClientConfig); err != nil {
		return nil, err
	}
	return config, nil
}

// clusterConfig is the client configuration of requests before the server is configured. Its errors name the flag to set.
func clusterConfig(o *genericoptions.CoreAPIOptions) (*rest.Config, error) {
	if o.CoreAPIKubeconfigPath == "" {
		c, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no --kubeconfig is given, and this is not a pod: which cluster is meant? KUBECONFIG is not read: name its file with --kubeconfig")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the pod's credentials: %w", err)
		}
		return c, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.CoreAPIKubeconfigPath}
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", o.CoreAPIKubeconfigPath, err)
	}
	return c, nil
}

// engineCluster is the configuration of the engine's requests to the cluster; traced is that of the API server. Spans cost as
// much as building a request, even without an exporter, so requests have them only where traces are configured.
func engineCluster(o *genericoptions.RecommendedOptions, traced *rest.Config) (*rest.Config, error) {
	if o.Traces.ConfigFile != "" {
		return named(traced), nil
	}
	c, err := clusterConfig(o.CoreAPI)
	if err != nil {
		return nil, err
	}
	return named(c), nil
}

// disableUnusable disables admission plugins and API Priority and Fairness where the cluster does not serve what they watch:
// they would wait forever. It is an error when a flag enables such a plugin by name.
func disableUnusable(ctx context.Context, cluster *rest.Config, plugins *genericoptions.AdmissionOptions,
	features *genericoptions.FeatureOptions,
) error {
	client, err := kubernetes.NewForConfig(unlimited(cluster))
	if err != nil {
		return fmt.Errorf("creating a client for the cluster: %w", err)
	}
	parts := slices.DeleteFunc(apiserver.Parts(), func(p apiserver.Part) bool {
		return slices.Contains(plugins.DisablePlugins, p.Name) ||
			(p.Name == apiserver.PriorityAndFairness && !features.EnablePriorityAndFairness)
	})
	unusable, err := apiserver.Probe(ctx, client, parts)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	plugins.DisablePlugins = slices.Clone(plugins.DisablePlugins)
	for _, part := range parts {
		reason, ok := unusable[part.Name]
		if !ok {
			continue
		}
		switch {
		case slices.Contains(plugins.EnablePlugins, part.Name):
			return fmt.Errorf("--enable-admission-plugins=%s cannot work: %s", part.Name, reason)
		case part.Name == apiserver.PriorityAndFairness:
			features.EnablePriorityAndFairness = false
		default:
			plugins.DisablePlugins = append(plugins.DisablePlugins, part.Name)
		}
		apiserver.ReportDisabled(part.Name)
		logger.Error(nil, "SWITCHED OFF until the next start", "part", part.Name, "reason", reason)
	}
	return nil
}

// ownPlugins returns what gives the admission plugins of this server what they need beyond those of Kubernetes.
func ownPlugins(o options.Completed, config *genericapiserver.RecommendedConfig) ([]admission.PluginInitializer, error) {
	reviews, err := reviewClient(o, config.ClientConfig)
	if err != nil {
		return nil, err
	}
	controllers, err := versioned.NewForConfig(unlimited(config.LoopbackClientConfig))
	if err != nil {
		return nil, fmt.Errorf("creating a client for controllers: %w", err)
	}
	return []admission.PluginInitializer{
		escalation.Initializer{Reviews: reviews},
		clusterwarnings.Initializer{
			Own: controllers, Port: o.Recommended.SecureServing.BindPort,
			Service: types.NamespacedName{Namespace: o.Controllers.Namespace, Name: o.Registration.Service},
		},
	}, nil
}

// reviewClient is the client of SubjectAccessReviews: it acts as the user who delegates authorization.
func reviewClient(o options.Completed, cluster *rest.Config) (authorizationclient.SubjectAccessReviewInterface, error) {
	if path := o.Recommended.Authorization.RemoteKubeConfigFile; path != "" && path != o.Recommended.CoreAPI.CoreAPIKubeconfigPath {
		config, err := clusterConfig(&genericoptions.CoreAPIOptions{CoreAPIKubeconfigPath: path})
		if err != nil {
			return nil, err
		}
		cluster = config
	}
	client, err := kubernetes.NewForConfig(unlimited(cluster))
	if err != nil {
		return nil, fmt.Errorf("creating a client for SubjectAccessReviews: %w", err)
	}
	return client.AuthorizationV1().SubjectAccessReviews(), nil
}

// applyAdmission builds the admission chain. Its policies are compiled for the version of the Kubernetes libraries, not for that
// of this server.
func applyAdmission(config *genericapiserver.RecommendedConfig, plugins *genericoptions.AdmissionOptions,
	registry basecompatibility.ComponentGlobalsRegistry, own ...admission.PluginInitializer,
) error {
	const kube = basecompatibility.DefaultKubeComponent
	client, err := kubernetes.NewForConfig(unlimited(config.ClientConfig))
	if err != nil {
		return fmt.Errorf("creating a client for admission: %w", err)
	}
	objects, err := dynamic.NewForConfig(unlimited(config.ClientConfig))
	if err != nil {
		return fmt.Errorf("creating a client for the parameters of admission policies: %w", err)
	}
	if err := plugins.ApplyTo(&config.Config, config.SharedInformerFactory, client, objects,
		registry.FeatureGateFor(kube), registry.EffectiveVersionFor(kube), own...); err != nil {
		return fmt.Errorf("configuring admission: %w", err)
	}
	return nil
}

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
	config.Inspection.Engine, config.Inspection.Standby = &inspection.Link{}, &inspection.Link{}
	engine := EngineConfig{
		Cluster: cluster, Controllers: *o.Controllers, Port: o.Recommended.SecureServing.BindPort,
		Inspection: config.Inspection.Engine, Standby: config.Inspection.Standby,
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
		if election := o.LeaderElection; election.LeaderElect {
			config.Lease = election.ResourceNamespace + "/" + election.ResourceName
		}
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
