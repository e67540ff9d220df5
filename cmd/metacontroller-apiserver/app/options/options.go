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

package options

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/clusterwarnings"
	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/escalation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/inlinehooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/pkg/features"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller"
)

// Options are all settings of the server. Create them with NewOptions.
type Options struct {
	// API says who serves controller objects.
	API *API
	// ServerRun are the limits and time-outs of the generic server.
	ServerRun *genericoptions.ServerRunOptions
	// Recommended are etcd, serving, authentication, authorization, audit, admission, and the connection to the cluster.
	Recommended *genericoptions.RecommendedOptions
	// Storage is the data directory.
	Storage *Storage
	// Certificates are the options of a serving certificate whose authority is in the cluster.
	Certificates *Certificates
	// Registration says how the server registers itself.
	Registration *Registration
	// Admission are the options of the plugins of this server.
	Admission *Admission
	// Controllers are the options of the engine that runs controllers.
	Controllers *Controllers
	// LeaderElection are the options of the election of the server that runs them.
	LeaderElection *LeaderElection
	// Logs is the logging.
	Logs *logsapi.LoggingConfiguration
	// Registry has the feature gates and effective versions.
	Registry basecompatibility.ComponentGlobalsRegistry
}

// completed is unexported so that only Complete returns a Completed.
type completed struct {
	Options
}

// Completed are settings with every default filled in.
type Completed struct {
	*completed
}

// NewOptions returns the defaults.
func NewOptions() (*Options, error) {
	registry, err := features.NewRegistry()
	if err != nil {
		return nil, err
	}
	o := &Options{
		API:            newAPI(),
		ServerRun:      newServerRun(registry),
		Recommended:    genericoptions.NewRecommendedOptions(metacontroller.KeyRoot, apiserver.Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)),
		Storage:        newStorage(),
		Certificates:   newCertificates(),
		Registration:   newRegistration(),
		Admission:      newAdmission(),
		Controllers:    newControllers(),
		LeaderElection: newLeaderElection(),
		Logs:           logsapi.NewLoggingConfiguration(),
		Registry:       registry,
	}
	o.Recommended.FeatureGate = registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	o.Recommended.Etcd.StorageConfig.EncodeVersioner = runtime.NewMultiGroupVersioner(
		v1alpha1.SchemeGroupVersion, schema.GroupKind{Group: v1alpha1.GroupName})
	registerPlugins(o.Recommended.Admission)
	defaultServing(o.Recommended.SecureServing)
	return o, nil
}

// Flags returns the flags in the sections in which --help shows them.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	r := o.Recommended
	o.API.addFlags(sets.FlagSet("api"))
	r.CoreAPI.AddFlags(sets.FlagSet("cluster"))
	o.Storage.addFlags(sets.FlagSet("storage"))
	r.Etcd.AddFlags(sets.FlagSet("storage"))
	hideUnsupported(sets.FlagSet("storage"))
	r.SecureServing.AddFlags(sets.FlagSet("secure serving"))
	describeServing(sets.FlagSet("secure serving"))
	o.Certificates.addFlags(sets.FlagSet("secure serving"))
	o.Registration.addFlags(sets.FlagSet("registration"))
	o.Controllers.addFlags(sets.FlagSet("controllers"))
	addRetiredFlags(sets.FlagSet("controllers"))
	o.LeaderElection.addFlags(sets.FlagSet("leader election"))
	r.Authentication.AddFlags(sets.FlagSet("authentication"))
	r.Authorization.AddFlags(sets.FlagSet("authorization"))
	r.Audit.AddFlags(sets.FlagSet("auditing"))
	o.Admission.addFlags(sets.FlagSet("admission"))
	r.Admission.AddFlags(sets.FlagSet("admission"))
	o.ServerRun.AddUniversalFlags(sets.FlagSet("server"))
	r.Features.AddFlags(sets.FlagSet("server"))
	r.EgressSelector.AddFlags(sets.FlagSet("egress selector"))
	r.Traces.AddFlags(sets.FlagSet("traces"))
	o.Registry.AddFlags(sets.FlagSet("features"))
	logsapi.AddFlags(o.Logs, sets.FlagSet("logs"))
	o.API.sets = sets
	return sets
}

// Complete fills in what follows from other settings. It changes the receiver.
func (o *Options) Complete() Completed {
	authentication, authorization, kubeconfig := o.Recommended.Authentication, o.Recommended.Authorization, o.Recommended.CoreAPI.CoreAPIKubeconfigPath
	authentication.RemoteKubeConfigFile = cmp.Or(authentication.RemoteKubeConfigFile, kubeconfig)
	authorization.RemoteKubeConfigFile = cmp.Or(authorization.RemoteKubeConfigFile, kubeconfig)
	o.Admission.complete(o.Recommended.Admission)
	if o.API.By == Definitions {
		o.LeaderElection.completeAs(Former)
	}
	o.LeaderElection.complete(o.Controllers.Namespace)
	o.ServerRun.ExternalHost = cmp.Or(o.ServerRun.ExternalHost, "localhost")
	return Completed{&completed{*o}}
}

// Validate returns every setting that is wrong.
func (c Completed) Validate() error {
	errs := c.API.validate(c.Controllers)
	if c.API.By != Definitions {
		errs = append(errs, c.validateServer()...)
	}
	errs = append(errs, c.Controllers.validate()...)
	errs = append(errs, c.LeaderElection.validate()...)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the flags are not usable: %w", err)
	}
	return nil
}

// validateServer returns what is wrong with the settings of the API server.
func (c Completed) validateServer() []error {
	errs := c.ServerRun.Validate()
	errs = append(errs, validateServing(c.Recommended.SecureServing)...)
	errs = append(errs, c.Storage.validate(c.Recommended.Etcd)...)
	errs = append(errs, c.Certificates.validate(c.Recommended.SecureServing)...)
	r := *c.Recommended
	if c.Embedded() {
		// --etcd-servers is set when the embedded etcd runs.
		etcd := *r.Etcd
		etcd.StorageConfig.Transport.ServerList = []string{"unix:///embedded"}
		r.Etcd = &etcd
	}
	errs = append(errs, r.Validate()...)
	return append(errs, c.Registration.validate(c.MakesCertificate())...)
}

// Embedded reports whether the server runs its own etcd.
func (c Completed) Embedded() bool {
	return len(c.Recommended.Etcd.StorageConfig.Transport.ServerList) == 0
}

// addRetiredFlags accepts those flags of Metacontroller (docs/reference/contract.md#s19.1) that have no meaning here, so that its manifests
// start this server as they are. Using one prints what to use instead.
func addRetiredFlags(fs *pflag.FlagSet) {
	const logging = "has no effect; see -v and --logging-format"
	for _, name := range []string{"zap-encoder", "zap-log-level", "zap-stacktrace-level", "zap-time-encoding"} {
		fs.String(name, "", "Retired.")
		retire(fs, name, logging)
	}
	fs.Bool("zap-devel", false, "Retired.")
	retire(fs, "zap-devel", logging)
}

func retire(fs *pflag.FlagSet, name, instead string) {
	flag := fs.Lookup(name)
	flag.Deprecated, flag.Hidden = instead, true
}

// Admission are the options of the admission of controllers that is this server's own.
type Admission struct {
	// EscalationCheck refuses controllers that may do more than their authors. Default true.
	EscalationCheck bool
	// PlanWarnings warns of what syncs would do with a definition that is written. Default true.
	PlanWarnings bool
}

func newAdmission() *Admission { return &Admission{EscalationCheck: true, PlanWarnings: true} }

func (a *Admission) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&a.EscalationCheck, "escalation-check", a.EscalationCheck, "Refuse controllers that may do more in the cluster than "+
		"the users who write them, unless these have the verb escalate on the controllers. Without it, every author of a "+
		"controller has the rights of this server.")
	fs.BoolVar(&a.PlanWarnings, "plan-warnings", a.PlanWarnings, "Plan what syncs would do with a definition that is written, for 2 seconds "+
		"and 500 parents at most, and say so in warnings: all of it if the write is a dry run, else which children it deletes or recreates. "+
		"Hooks are called for that.")
}

// complete switches off what is not wanted. It may be called again.
func (a *Admission) complete(generic *genericoptions.AdmissionOptions) {
	if !a.EscalationCheck && !slices.Contains(generic.DisablePlugins, escalation.PluginName) {
		generic.DisablePlugins = append(slices.Clone(generic.DisablePlugins), escalation.PluginName)
	}
}

// registerPlugins adds the plugins of this server behind those of Kubernetes. What is refused needs no warnings.
func registerPlugins(generic *genericoptions.AdmissionOptions) {
	escalation.Register(generic.Plugins)
	inlinehooks.Register(generic.Plugins)
	clusterwarnings.Register(generic.Plugins)
	generic.RecommendedPluginOrder = append(generic.RecommendedPluginOrder, escalation.PluginName, inlinehooks.PluginName, clusterwarnings.PluginName)
}
