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
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/destination"
)

const (
	// SameOriginRedirects follows redirects of hooks within the same scheme, host and port, and from http at port 80 to https at port 443.
	SameOriginRedirects = "same-origin"
	// NoRedirects follows none.
	NoRedirects = "none"

	// insideVariable is set by the kubelet in every container of a Pod.
	insideVariable = "KUBERNETES_SERVICE_HOST"
)

// Webhooks are the options of where hooks may be.
type Webhooks struct {
	// AllowedHosts are the only places where hooks may be; see [destination.Options]. Empty: anywhere that is not refused, the default.
	AllowedHosts []string
	// AllowLoopback says that hooks may be at loopback addresses. Default: whether this process runs outside of a cluster.
	AllowLoopback bool
	// Redirects is SameOriginRedirects, the default, or NoRedirects.
	Redirects string
}

func newWebhooks() Webhooks {
	return Webhooks{AllowLoopback: os.Getenv(insideVariable) == "", Redirects: SameOriginRedirects}
}

func (w *Webhooks) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&w.AllowedHosts, "webhook-allowed-hosts", w.AllowedHosts,
		"The only places where hooks may be: host names such as web.hooks, which is the Service web of the namespace hooks; namespaces such as "+
			".hooks, for web.hooks and web.hooks.svc, which are both looked up as web.hooks.svc; suffixes of host names with two labels or more, "+
			"such as .hooks.example.com, or .svc; IP addresses and networks such as 10.0.0.0/8, to which names must lead. Empty: anywhere. "+
			"Link-local, multicast and unspecified addresses, fd00:ec2::254 and the port of this process at addresses of its own machine are "+
			"refused in any case. Behind a proxy, which looks names up itself, names are checked as they are written: networks allow no names "+
			"there, .hooks allows web.hooks.svc alone, and numbers such as 2852039166 are refused.")
	fs.BoolVar(&w.AllowLoopback, "webhook-allow-loopback", w.AllowLoopback,
		"Allow hooks at loopback addresses. Default: true outside of a cluster, false in a Pod.")
	fs.StringVar(&w.Redirects, "webhook-redirects", w.Redirects,
		"Which redirects of hooks are followed: "+SameOriginRedirects+", those to the same scheme, host and port, and those of the same host "+
			"from http at port 80 to https at port 443, or "+NoRedirects+".")
}

func (w *Webhooks) validate() []error {
	var errs []error
	if _, err := w.Destinations(0); err != nil {
		errs = append(errs, err)
	}
	if w.Redirects != SameOriginRedirects && w.Redirects != NoRedirects {
		errs = append(errs, fmt.Errorf("--webhook-redirects must be %s or %s, not %q", SameOriginRedirects, NoRedirects, w.Redirects))
	}
	return errs
}

// Destinations returns the policy that the options describe. The port is that of this server; 0: none.
func (w *Webhooks) Destinations(port int) (*destination.Policy, error) {
	policy, err := destination.New(destination.Options{AllowedHosts: w.AllowedHosts, AllowLoopback: w.AllowLoopback, ServerPort: port})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", destination.AllowedHostsFlag, err)
	}
	return policy, nil
}
