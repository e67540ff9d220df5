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
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/destination"
)

// TestWebhooks parses flags inside and outside of a cluster, and looks at what they make of a hook's address.
func TestWebhooks(t *testing.T) {
	for name, tc := range map[string]struct {
		inside string
		args   []string
		// refused are hosts where no hook may be.
		allowed, refused []string
		// wrong is a part of the error.
		wrong string
	}{
		"outside of a cluster":         {"", nil, []string{"127.0.0.1", "hook.example.com", "10.0.0.1"}, []string{"169.254.169.254"}, ""},
		"in a Pod":                     {"10.96.0.1", nil, []string{"hook.example.com", "10.0.0.1"}, []string{"127.0.0.1", "169.254.169.254"}, ""},
		"in a Pod, loopback allowed":   {"10.96.0.1", []string{"--webhook-allow-loopback"}, []string{"127.0.0.1"}, []string{"169.254.169.254"}, ""},
		"outside, loopback refused":    {"", []string{"--webhook-allow-loopback=false"}, []string{"10.0.0.1"}, []string{"127.0.0.1"}, ""},
		"allowed hosts":                {"", []string{"--webhook-allowed-hosts=.hooks,10.0.0.0/8"}, []string{"web.hooks.svc", "10.0.0.1"}, []string{"web.hooks", "web.shop.svc", "192.0.2.1"}, ""},
		"allowed hosts in two flags":   {"", []string{"--webhook-allowed-hosts=.hooks", "--webhook-allowed-hosts=a.b"}, []string{"web.hooks.svc", "a.b"}, []string{"b.b"}, ""},
		"allowed hosts with a port":    {"", []string{"--webhook-allowed-hosts=web.hooks:80"}, nil, nil, `--webhook-allowed-hosts: "web.hooks:80" is no host name`},
		"no redirects":                 {"", []string{"--webhook-redirects=none"}, []string{"a.b"}, nil, ""},
		"redirects that are not known": {"", []string{"--webhook-redirects=all"}, nil, nil, `--webhook-redirects must be same-origin or none, not "all"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(insideVariable, tc.inside)
			w, flags := newWebhooks(), pflag.NewFlagSet("", pflag.ContinueOnError)
			w.addFlags(flags)
			if err := flags.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			err := errors.Join(w.validate()...)
			if tc.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("got %v, want %s", err, tc.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			policy, err := w.Destinations(0)
			if err != nil {
				t.Fatal(err)
			}
			for _, host := range tc.allowed {
				if err := policy.CheckHost(host); err != nil {
					t.Errorf("%s: %v", host, err)
				}
			}
			for _, host := range tc.refused {
				if _, ok := errors.AsType[*destination.RefusedError](policy.CheckHost(host)); !ok {
					t.Errorf("%s is allowed", host)
				}
			}
		})
	}
}

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

// complete returns the options that flags make.
func complete(t *testing.T, flags ...string) Completed {
	t.Helper()
	o, err := NewOptions()
	if err != nil {
		t.Fatal(err)
	}
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range o.Flags().FlagSets {
		all.AddFlagSet(set)
	}
	if err := all.Parse(flags); err != nil {
		t.Fatal(err)
	}
	return o.Complete()
}

func TestTheLeaseOfDefinitionsIsMetacontrollers(t *testing.T) {
	for name, test := range map[string]struct {
		flags []string
		want  string
	}{
		"an API of this server":       {nil, "metacontroller-apiserver"},
		"definitions":                 {[]string{"--api=definitions"}, "metacontroller"},
		"a name of Metacontroller's":  {[]string{"--api=definitions", "--leader-election-id=x"}, "x"},
		"a name":                      {[]string{"--api=definitions", "--leader-elect-resource-name=x"}, "x"},
		"the name of the other Lease": {[]string{"--api=definitions", "--leader-elect-resource-name=metacontroller-apiserver"}, "metacontroller-apiserver"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := complete(t, test.flags...).LeaderElection.ResourceName; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestAddressesHaveAnEffectWithDefinitionsAlone(t *testing.T) {
	const address = "--metrics-address=:1234"
	if got := complete(t, address, "--workers=3").API.Ineffective(); !slices.Equal(got, []string{"--metrics-address"}) {
		t.Errorf("flags without effect beside an API server: %q", got)
	}
	api := complete(t, address, "--api=definitions").API
	if got := api.Ineffective(); len(got) > 0 || api.Port() != 1234 {
		t.Errorf("flags without effect on definitions: %q; the port is %d", got, api.Port())
	}
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
