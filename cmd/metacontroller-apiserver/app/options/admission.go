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
	"slices"

	"github.com/spf13/pflag"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/clusterwarnings"
	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/escalation"
)

// Admission are the options of the admission plugins that are this server's own.
type Admission struct {
	// EscalationCheck refuses controllers that may do more than their authors. Default true.
	EscalationCheck bool
}

func newAdmission() *Admission { return &Admission{EscalationCheck: true} }

func (a *Admission) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&a.EscalationCheck, "escalation-check", a.EscalationCheck, "Refuse controllers that may do more in the cluster than "+
		"the users who write them, unless these have the verb escalate on the controllers. Without it, whoever may write a "+
		"controller has the rights of this server.")
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
	clusterwarnings.Register(generic.Plugins)
	generic.RecommendedPluginOrder = append(generic.RecommendedPluginOrder, escalation.PluginName, clusterwarnings.PluginName)
}
