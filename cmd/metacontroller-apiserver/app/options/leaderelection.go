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
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfig "k8s.io/component-base/config"
	configoptions "k8s.io/component-base/config/options"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
)

// LeaderElection are the options of the election of the one server that runs controllers. The flags --leader-elect* are those of Kubernetes'
// components; Metacontroller's (docs/reference/contract.md#s19.1) set the same values.
type LeaderElection struct {
	// LeaderElectionConfiguration has the values. The election is on by default, so that a second server waits even where nobody thought of
	// it. Empty namespace: that of the server.
	componentbaseconfig.LeaderElectionConfiguration

	flags *pflag.FlagSet
}

func newLeaderElection() *LeaderElection {
	return &LeaderElection{LeaderElectionConfiguration: componentbaseconfig.LeaderElectionConfiguration{
		LeaderElect:   true,
		LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
		ResourceLock:  resourcelock.LeasesResourceLock,
		ResourceName:  apiserver.Name,
	}}
}

// formerFlags has Metacontroller's flags, and those that set the same.
var formerFlags = map[string]string{
	"leader-election":               "leader-elect",
	"leader-election-resource-lock": "leader-elect-resource-lock",
	"leader-election-namespace":     "leader-elect-resource-namespace",
	"leader-election-id":            "leader-elect-resource-name",
}

func (l *LeaderElection) addFlags(fs *pflag.FlagSet) {
	l.flags = fs
	configoptions.BindLeaderElectionFlags(&l.LeaderElectionConfiguration, fs)
	for name, usage := range map[string]string{
		"leader-elect": "Run controllers only while this server holds the Lease, and wait for it otherwise. Servers over one cluster that " +
			"run different controllers, by --target-label-selector, need a --leader-elect-resource-name each.",
		"leader-elect-lease-duration": "How long other servers wait for the holder of the Lease to renew it before they take it, in whole seconds.",
		"leader-elect-renew-deadline": "Time after which a server that could not renew the Lease writes nothing any more and stops its " +
			"controllers. Less than the duration of the Lease.",
		"leader-elect-retry-period":       "Time between renewals of the Lease, and between attempts that failed.",
		"leader-elect-resource-lock":      "Kind of the object that is held. Only leases.",
		"leader-elect-resource-name":      "Name of the Lease.",
		"leader-elect-resource-namespace": "Namespace of the Lease, which is created if the cluster does not have it. Default: --namespace.",
	} {
		fs.Lookup(name).Usage = usage
	}
	for former, present := range formerFlags {
		if former == "leader-election" {
			fs.Bool(former, false, "Metacontroller's --"+present+".")
			fs.Lookup(former).NoOptDefVal = fs.Lookup(present).NoOptDefVal
		} else {
			fs.String(former, "", "Metacontroller's --"+present+".")
		}
		retire(fs, former, "use --"+present)
	}
}

// completeAs sets the name of the Lease, unless a flag does. It may be called again.
func (l *LeaderElection) completeAs(name string) {
	if l.given("leader-elect-resource-name") == nil {
		l.ResourceName = name
	}
}

// complete takes over what Metacontroller's flags say. The namespace is that of the server. It may be called again.
func (l *LeaderElection) complete(namespace string) {
	for former, present := range formerFlags {
		if given := l.given(former); given != nil && l.given(present) == nil {
			_ = l.flags.Lookup(present).Value.Set(given.Value.String()) // It is of the same type.
		}
	}
	l.ResourceNamespace = cmp.Or(l.ResourceNamespace, namespace)
}

// given returns a flag that is set, nil if it is not.
func (l *LeaderElection) given(name string) *pflag.Flag {
	if l.flags == nil || !l.flags.Lookup(name).Changed {
		return nil
	}
	return l.flags.Lookup(name)
}

func (l *LeaderElection) validate() []error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, former := range slices.Sorted(maps.Keys(formerFlags)) {
		present := formerFlags[former]
		if a, b := l.given(former), l.given(present); a != nil && b != nil && a.Value.String() != b.Value.String() {
			wrong("--%s=%s and --%s=%s contradict each other: give one of them", former, a.Value, present, b.Value)
		}
	}
	if !l.LeaderElect {
		return errs
	}
	if l.ResourceLock != resourcelock.LeasesResourceLock {
		wrong("--leader-elect-resource-lock must be %s, not %q", resourcelock.LeasesResourceLock, l.ResourceLock)
	}
	if l.ResourceName == "" {
		wrong("--leader-elect-resource-name must not be empty")
	}
	if d := l.LeaseDuration.Duration; d < time.Second || d%time.Second != 0 {
		wrong("--leader-elect-lease-duration must be in whole seconds, not %s", d)
	}
	if l.RenewDeadline.Duration >= l.LeaseDuration.Duration {
		wrong("--leader-elect-renew-deadline must be less than --leader-elect-lease-duration, not %s", l.RenewDeadline.Duration)
	}
	if l.RetryPeriod.Duration <= 0 {
		wrong("--leader-elect-retry-period must be positive, not %s", l.RetryPeriod.Duration)
	}
	if l.RenewDeadline.Duration <= time.Duration(leaderelection.JitterFactor*float64(l.RetryPeriod.Duration)) {
		wrong("--leader-elect-renew-deadline must be more than %.1f times --leader-elect-retry-period, not %s", leaderelection.JitterFactor,
			l.RenewDeadline.Duration)
	}
	return errs
}
