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

import "github.com/spf13/pflag"

// addRetiredFlags accepts those flags of Metacontroller (docs/reference/contract.md#s19.1) that have no meaning here, so that its manifests
// start this server as they are. Using one prints what to use instead.
func addRetiredFlags(fs *pflag.FlagSet) {
	const logging = "has no effect; see -v and --logging-format"
	for _, flag := range []struct{ name, instead string }{
		{"metrics-address", "has no effect; metrics are served at /metrics of --secure-port"},
		{"health-probe-bind-address", "has no effect; probes are served at /livez and /readyz of --secure-port"},
		{"pprof-address", "has no effect; profiles are served at /debug/pprof of --secure-port"},
		{"zap-encoder", logging},
		{"zap-log-level", logging},
		{"zap-stacktrace-level", logging},
		{"zap-time-encoding", logging},
	} {
		fs.String(flag.name, "", "Retired.")
		retire(fs, flag.name, flag.instead)
	}
	fs.Bool("zap-devel", false, "Retired.")
	retire(fs, "zap-devel", logging)
}

func retire(fs *pflag.FlagSet, name, instead string) {
	flag := fs.Lookup(name)
	flag.Deprecated, flag.Hidden = instead, true
}
