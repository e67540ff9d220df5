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
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
)

func TestFlagsOfTheAPIServerAreRefusedWithDefinitions(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"an unknown API":       {[]string{"--api=files"}, `--api must be aggregated or definitions, not "files"`},
		"a store":              {[]string{"--api=definitions", "--etcd-servers=http://localhost"}, "--etcd-servers is for the API server, which is off by --api=definitions: remove one of them"},
		"a registration":       {[]string{"--api=definitions", "--register"}, "--register is for the API server"},
		"admission":            {[]string{"--api=definitions", "--escalation-check=false"}, "--escalation-check is for the API server"},
		"an address":           {[]string{"--api=definitions", "--metrics-address=9999"}, `--metrics-address must be HOST:PORT, :PORT or 0, not "9999"`},
		"nothing to do":        {[]string{"--api=definitions", "--enable-controllers=false"}, "--enable-controllers=false has no use with --api=definitions"},
		"the rest is checked":  {[]string{"--api=definitions", "--workers=0"}, "--workers must be at least 1, not 0"},
		"Metacontroller's own": {append([]string{"--api=definitions"}, metacontrollers...), "no --kubeconfig is given, and this is not a pod"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := execute(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want %q in it", err, test.want)
			}
		})
	}
}

// metacontrollers are all flags of Metacontroller that a Pod has a use for.
var metacontrollers = []string{
	"--zap-log-level=4", "--zap-devel", "--zap-encoder=json", "--zap-stacktrace-level=error", "--zap-time-encoding=iso8601",
	"--discovery-interval=20s", "--cache-flush-interval=30m", "--metrics-address=0", "--health-probe-bind-address=127.0.0.1:0", "--pprof-address=0",
	"--client-go-qps=5", "--client-go-burst=10", "--workers=5", "--events-qps=0.1", "--events-burst=25", "--target-label-selector=a=b",
	"--leader-election", "--leader-election-resource-lock=leases", "--leader-election-namespace=", "--leader-election-id=metacontroller",
	"--apply-strategy=dynamic-apply", "--apply-strategy-ssa-field-manager=metacontroller",
}

func TestFlagsWithOneDashAreMetacontrollers(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.StringP("workers", "w", "", "")
	got := twoDashes(flags, []string{"-workers=5", "-workers", "5", "-w", "5", "--workers=5", "-nothing", "-"})
	if want := []string{"--workers=5", "--workers", "5", "-w", "5", "--workers=5", "-nothing", "-"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestControllersRunOnDefinitionsAlone(t *testing.T) {
	const all = "compositecontrollers compositecontrollers/status decoratorcontrollers controllerrevisions"
	for name, test := range map[string]struct {
		serves string
		want   string
	}{
		"all that is needed": {all, ""},
		"nothing":            {"", "the cluster serves no compositecontrollers, decoratorcontrollers, controllerrevisions of metacontroller.k8s.io/v1alpha1: install"},
		"a part":             {"compositecontrollers decoratorcontrollers", "the cluster serves no controllerrevisions of"},
		"by an API server":   {all + " compositecontrollers/plan", "the cluster leads metacontroller.k8s.io to an API server"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if test.serves == "" {
					http.NotFound(w, nil)
					return
				}
				var list []string
				for resource := range strings.FieldsSeq(test.serves) {
					list = append(list, fmt.Sprintf(`{"name":%q}`, resource))
				}
				fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metacontroller.k8s.io/v1alpha1","resources":[%s]}`, strings.Join(list, ","))
			}))
			defer cluster.Close()
			client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: cluster.URL})
			if err != nil {
				t.Fatal(err)
			}
			if err := fit(t.Context(), client); test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestAProcessWithoutTheAPIServesProbesAndMetrics(t *testing.T) {
	var ready atomic.Bool
	served := handlers(&options.API{MetricsAddress: ":1", ProbesAddress: ":2", ProfilesAddress: options.Off}, &ready)
	status := func(address, path string) int {
		if served[address] == nil {
			return 0
		}
		response := httptest.NewRecorder()
		served[address].ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return response.Code
	}
	for _, check := range []struct {
		address, path string
		want          int
	}{{":1", "/metrics", 200}, {":1", "/readyz", 404}, {":2", "/livez", 200}, {":2", "/healthz", 200}, {":2", "/readyz", 503}, {options.Off, "/debug/pprof/", 0}} {
		if got := status(check.address, check.path); got != check.want {
			t.Errorf("%s at %s: %d, want %d", check.path, check.address, got, check.want)
		}
	}
	ready.Store(true)
	if got := status(":2", "/readyz"); got != http.StatusOK {
		t.Errorf("/readyz of a process that is ready: %d", got)
	}
}
