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
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

const (
	// Aggregated is the API that this process serves, as an aggregated API server.
	Aggregated = "aggregated"
	// Definitions is the API that the cluster serves by CustomResourceDefinitions.
	Definitions = "definitions"

	// Former is the name of Metacontroller's program, and of its Lease.
	Former = "metacontroller"

	// Off is the address of what is not served.
	Off = "0"
)

// API are the options of who serves controller objects, and of what a process serves that does not.
type API struct {
	// By is Aggregated or Definitions. The default follows from the name of the program (docs/design/0026-definitions.md).
	By string
	// MetricsAddress, ProbesAddress and ProfilesAddress are where a process serves metrics, probes and profiles without authentication when
	// the cluster serves the API. 0: nowhere. The defaults are Metacontroller's (docs/reference/contract.md#s19.1).
	MetricsAddress, ProbesAddress, ProfilesAddress string

	// sets have the flags.
	sets cliflag.NamedFlagSets
}

func newAPI() *API {
	a := &API{By: Aggregated, MetricsAddress: ":9999", ProbesAddress: ":8081", ProfilesAddress: Off}
	if CalledAsMetacontroller() {
		a.By = Definitions
	}
	return a
}

// CalledAsMetacontroller reports whether this program was started by the name of Metacontroller's, as its manifests do.
func CalledAsMetacontroller() bool { return filepath.Base(os.Args[0]) == Former }

func (a *API) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&a.By, "api", a.By, "Who serves controllers and their revisions: "+Aggregated+", this server, or "+Definitions+
		", the cluster by CustomResourceDefinitions, which may be Metacontroller's. With "+Definitions+" this process stores nothing, registers "+
		"nothing and runs controllers alone. Default: "+Definitions+" if the program is started by the name "+Former+", else "+Aggregated+".")
	const alone = " With --api=" + Definitions + " alone: otherwise --secure-port serves them."
	fs.StringVar(&a.MetricsAddress, "metrics-address", a.MetricsAddress, "Address at which /metrics is served by http. 0: nowhere."+alone)
	fs.StringVar(&a.ProbesAddress, "health-probe-bind-address", a.ProbesAddress,
		"Address at which /livez, /readyz and /healthz are served by http. 0: nowhere."+alone)
	fs.StringVar(&a.ProfilesAddress, "pprof-address", a.ProfilesAddress, "Address at which /debug/pprof is served by http. 0: nowhere."+alone)
}

// Port is the port of MetricsAddress, 0 if there is none or it has a name.
func (a *API) Port() int {
	_, text, _ := net.SplitHostPort(a.MetricsAddress)
	port, _ := strconv.Atoi(text)
	return port
}

// ownSections are the sections of flags that mean something when the cluster serves the API. Of the others none does.
var ownSections = []string{"api", "cluster", "controllers", "leader election", "features", "logs", "general"}

// validate returns what is wrong, flags without effect among it: a process that ignores them is not what somebody wanted.
func (a *API) validate(controllers *Controllers) []error {
	var errs []error
	switch a.By {
	case Aggregated:
		return nil
	case Definitions:
	default:
		return []error{fmt.Errorf("--api must be %s or %s, not %q", Aggregated, Definitions, a.By)}
	}
	for flag, address := range map[string]string{
		"metrics-address": a.MetricsAddress, "health-probe-bind-address": a.ProbesAddress, "pprof-address": a.ProfilesAddress,
	} {
		if _, _, err := net.SplitHostPort(address); err != nil && address != Off {
			errs = append(errs, fmt.Errorf("--%s must be HOST:PORT, :PORT or 0, not %q", flag, address))
		}
	}
	if !controllers.Enabled {
		errs = append(errs, fmt.Errorf("--enable-controllers=false has no use with --api=%s: the process would do nothing", Definitions))
	}
	for _, section := range a.sets.Order {
		if slices.Contains(ownSections, section) {
			continue
		}
		a.sets.FlagSets[section].VisitAll(func(f *pflag.Flag) {
			if f.Changed {
				errs = append(errs, fmt.Errorf("--%s is for the API server, which is off by --api=%s: remove one of them", f.Name, Definitions))
			}
		})
	}
	return errs
}

// Ineffective returns those flags that are given and have no effect, because this server serves the API.
func (a *API) Ineffective() (names []string) {
	if a.By == Definitions {
		return nil
	}
	for _, name := range []string{"metrics-address", "health-probe-bind-address", "pprof-address"} {
		if f := a.sets.FlagSet("api").Lookup(name); f != nil && f.Changed {
			names = append(names, "--"+name)
		}
	}
	return names
}
