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

package destination

import (
	"strings"
	"testing"
)

func TestAllowedHosts(t *testing.T) {
	for entry, tc := range map[string]struct{ allowed, refused []string }{
		"web.hooks":            {[]string{"web.hooks", "WEB.hooks."}, []string{"hooks", "a.web.hooks", "web.hooks.example"}},
		"*.hooks.example":      {[]string{"web.hooks.example", "a.web.hooks.example"}, []string{"hooks.example", "webhooks.example", ".hooks.example"}},
		".hooks.Svc":           {[]string{"web.hooks.svc", "a.web.hooks.svc"}, []string{"hooks.svc", "web.hooks"}},
		"*.hooks":              {[]string{"web.hooks.svc", "WEB.hooks.SVC."}, []string{"hooks", "webhooks", ".hooks", "a.web.hooks", "a.web.hooks.svc", "hooks.svc"}},
		".svc":                 {[]string{"web.hooks.svc"}, []string{"web.hooks", "svc"}},
		".Hooks":               {[]string{"web.hooks.svc"}, []string{"hooks", "xhooks", "web.hooks.svc.cluster.local", ".hooks.svc", "a_b.hooks.svc", "a。b.hooks.svc"}},
		"10.1.0.0/16":          {[]string{"10.1.2.3", "::ffff:10.1.2.3"}, []string{"10.2.0.1", "web.hooks"}},
		"10.1.2.3":             {[]string{"10.1.2.3"}, []string{"10.1.2.4"}},
		"2001:db8::/32":        {[]string{"2001:db8::1"}, []string{"2001:db9::1", "10.1.2.3"}},
		"::ffff:10.1.2.3":      {[]string{"10.1.2.3"}, []string{"10.1.2.4"}},
		"web.hooks.svc.local.": {[]string{"web.hooks.svc.local"}, []string{"web.hooks"}},
	} {
		t.Run(entry, func(t *testing.T) {
			p, err := New(Options{AllowedHosts: []string{entry}})
			if err != nil {
				t.Fatal(err)
			}
			for _, host := range tc.allowed {
				if err := p.CheckHost(host); err != nil {
					t.Errorf("%s: %v", host, err)
				}
			}
			for _, host := range tc.refused {
				err := p.CheckHost(host)
				if !isRefused(err) || !strings.HasSuffix(err.Error(), "is not among the allowed hosts") {
					t.Errorf("%s: got %v, want a refusal", host, err)
				}
			}
		})
	}
}

// TestServicesBehindAProxy is about names that the proxy may know as others than Services.
func TestServicesBehindAProxy(t *testing.T) {
	p, err := New(Options{AllowedHosts: []string{".dev", "hook.dev"}})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"hook.dev":     "",
		"web.dev.svc":  "",
		"web.dev.svc.": "",
		"web.dev":      "web.dev is a name that a proxy may find outside of the cluster",
		"Evil.dev.":    "Evil.dev. is a name that a proxy may find outside of the cluster",
		"a.evil.dev":   "a.evil.dev is not among the allowed hosts",
	} {
		err := p.CheckHost(host)
		if want == "" && err != nil || want != "" && (!isRefused(err) || err.Error() != want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestHostsBehindAProxy is about what a proxy may take for an address.
func TestHostsBehindAProxy(t *testing.T) {
	const number, linkLocal = " is a number, which may be any IP address", "a link-local address, where clouds serve credentials of nodes"
	inPod, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"2852039166":           number,
		"2852039166.":          number,
		"0xA9FEA9FE":           number,
		"0Xa9fea9fe":           number,
		"025177524776":         number,
		"0251.0376.0251.0376":  number,
		"169.254.43518":        number,
		"169.16689662":         number,
		"0xA9.254.0251.0xFE":   number,
		"127.1":                number,
		"0":                    number,
		"1.2.3.256":            number,
		"１６９.254.43518":        number,
		"０ｘＡ９ＦＥＡ９ＦＥ":           number,
		"169.254.169.254":      " is " + linkLocal,
		"169.254.169.254.":     " leads to 169.254.169.254, which is " + linkLocal,
		"169.254.169.254..":    " leads to 169.254.169.254, which is " + linkLocal,
		"１６９.254.169.254":      " leads to 169.254.169.254, which is " + linkLocal,
		"169。254。169。254":      " leads to 169.254.169.254, which is " + linkLocal,
		"127.0.0.1.":           " leads to 127.0.0.1, which is a loopback address, where only this server's own Pod is",
		"fd00:ec2::254":        " is the metadata service of EC2, which serves credentials of nodes",
		"fd00:ec2:0:0::fe":     "",
		"fd00:ec2::0254":       " leads to fd00:ec2::254, which is the metadata service of EC2, which serves credentials of nodes",
		"bü_cher.example":      " is no host name",
		"bücher.example":       "",
		"hook.shop":            "",
		"hook.shop.":           "",
		"hook_1.shop":          "",
		"hook.2024":            "", // The Service of a namespace whose name is a number.
		"hook.0xab":            "",
		"0xshop":               "",
		"10.0.0.1":             "",
		"10.0.0.1.":            "",
		"3com.example":         "",
		"1password.42.example": "",
	} {
		err := inPod.CheckHost(host)
		if want == "" && err != nil || want != "" && (!isRefused(err) || err.Error() != host+want) {
			t.Errorf("got  %v\nwant %s%s", err, host, want)
		}
	}
}

func TestAllowedHostsThatAreNotUnderstood(t *testing.T) {
	for _, entry := range []string{"", "*", ".", "*.", "http://web.hooks", "web.hooks:80", "10.0.0.0/33", "10.0.0.0/", "a b", "we*b", "fe80::1%eth0", "web_hooks"} {
		if _, err := New(Options{AllowedHosts: []string{"web.hooks", entry}}); err == nil || !strings.Contains(err.Error(), `"`+entry+`"`) {
			t.Errorf("%q: got %v, want an error that names it", entry, err)
		}
	}
}

func TestAdviceNamesTheFlag(t *testing.T) {
	for flag, want := range map[string]string{
		AllowLoopbackFlag: "run the hook behind a Service, or run this server with --webhook-allow-loopback",
		AllowedHostsFlag:  "add the host, or a network that it is in, to --webhook-allowed-hosts of this server",
		"":                "this server calls no hook there, and no flag allows it",
	} {
		if got := (&RefusedError{Flag: flag}).Advice(); got != want {
			t.Errorf("%s: %s", flag, got)
		}
	}
	const want = "write it as NAME.NAMESPACE.svc, exempt it from the proxy with NO_PROXY of this server, or add the host itself to --webhook-allowed-hosts"
	if got := (&RefusedError{Flag: AllowedHostsFlag, Kind: foundByProxy}).Advice(); got != want {
		t.Errorf("of a name that a proxy looks up: %s", got)
	}
}
