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
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// parsed are the options that flags make.
func parsed(t *testing.T, flags ...string) *LeaderElection {
	t.Helper()
	l, fs := newLeaderElection(), pflag.NewFlagSet("", pflag.ContinueOnError)
	l.addFlags(fs)
	if err := fs.Parse(flags); err != nil {
		t.Fatal(err)
	}
	l.complete("own")
	l.complete("own")
	return l
}

func TestFlagsOfLeaderElection(t *testing.T) {
	type values struct {
		elect           bool
		namespace, name string
	}
	for name, test := range map[string]struct {
		flags []string
		want  values
	}{
		"the defaults":             {nil, values{true, "own", "metacontroller-apiserver"}},
		"those of Kubernetes":      {[]string{"--leader-elect=false", "--leader-elect-resource-name=x", "--leader-elect-resource-namespace=y"}, values{false, "y", "x"}},
		"those of Metacontroller":  {[]string{"--leader-election=false", "--leader-election-id=x", "--leader-election-namespace=y"}, values{false, "y", "x"}},
		"a flag without a value":   {[]string{"--leader-election", "--leader-election-resource-lock=leases"}, values{true, "own", "metacontroller-apiserver"}},
		"both, which agree":        {[]string{"--leader-election-id=x", "--leader-elect-resource-name=x"}, values{true, "own", "x"}},
		"Metacontroller's default": {[]string{"--leader-election-namespace="}, values{true, "own", "metacontroller-apiserver"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := parsed(t, test.flags...)
			if got := (values{l.LeaderElect, l.ResourceNamespace, l.ResourceName}); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if errs := l.validate(); len(errs) > 0 {
				t.Errorf("refused: %v", errs)
			}
			if l.LeaseDuration.Duration != 15*time.Second || l.RenewDeadline.Duration != 10*time.Second || l.RetryPeriod.Duration != 2*time.Second {
				t.Errorf("the times are %v", l.LeaderElectionConfiguration)
			}
		})
	}
}
