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
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
	logsapi "k8s.io/component-base/logs/api/v1"
)

func TestMain(m *testing.M) {
	// Commands of this package set up logging again and again.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	// Logging that is set up is flushed as long as the process is there.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// execute runs the command, and returns what it prints.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd, err := NewCommand()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestHelpHasSections(t *testing.T) {
	help, err := execute(t, "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nCluster flags:", "\nStorage flags:", "\nSecure serving flags:", "\nControllers flags:", "\nLeader election flags:", "\nFeatures flags:", "\nLogs flags:",
		"--data-dir", "--hook-response-limit", "--emulated-version", "--logging-format", "--escalation-check",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("the help has no %q", want)
		}
	}
	for _, hidden := range []string{"zap-", "etcd-servers-overrides", "storage-media-type"} {
		if strings.Contains(help, hidden) {
			t.Errorf("the help shows %s, which has no effect", hidden)
		}
	}
	for _, command := range []string{
		"register", "register roles", "unregister", "preflight", "rbac", "snapshot save", "snapshot restore", "snapshot status",
		"release-finalizers", "export", "import",
	} {
		if !regexp.MustCompile(`(?m)^  metacontroller-apiserver ` + command + `  +\S`).MatchString(help) {
			t.Errorf("the help does not list %s:\n%s", command, help)
		}
	}
	sub, err := execute(t, "register", "--help")
	if err != nil || strings.Contains(sub, "--etcd-servers") || !strings.Contains(sub, "--kubeconfig") {
		t.Errorf("the help of register is not its own: %v\n%s", err, sub)
	}
}

func TestVersion(t *testing.T) {
	if out, err := execute(t, "--version"); err != nil || !strings.HasPrefix(out, "metacontroller-apiserver version v") {
		t.Errorf("got %v %q", err, out)
	}
}

func TestWrongSettingsAreSentences(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	data := t.TempDir()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"an unknown flag":                   {[]string{"--workerz=3"}, "unknown flag: --workerz (see metacontroller-apiserver --help)"},
		"an argument":                       {[]string{"serve"}, `unknown command "serve" for "metacontroller-apiserver" (see metacontroller-apiserver --help)`},
		"no argument of a subcommand":       {[]string{"snapshot", "save"}, "accepts 1 arg(s), received 0 (see metacontroller-apiserver snapshot save --help)"},
		"no file of a subcommand":           {[]string{"import"}, "name the file with -f FILE, or pipe it and say -f -"},
		"a feature gate":                    {[]string{"--feature-gates=metacontroller:Nothing=true"}, "unrecognized feature gate: Nothing"},
		"another version":                   {[]string{"--emulated-version=metacontroller=9.9"}, "emulation version 9.9 is not between"},
		"no cluster":                        {[]string{"--data-dir", data}, "no --kubeconfig is given, and this is not a pod: which cluster is meant? KUBECONFIG is not read"},
		"a missing file":                    {[]string{"--data-dir", data, "--kubeconfig", missing}, "reading kubeconfig " + missing},
		"TLS for nothing":                   {[]string{"--etcd-cafile", "x"}, "--etcd-cafile, --etcd-certfile and --etcd-keyfile need --etcd-servers"},
		"an etcd of a kind":                 {[]string{"--etcd-servers-overrides=metacontroller.k8s.io/controllerrevisions#http://localhost:2379"}, "--etcd-servers-overrides is not supported: all objects are in one etcd"},
		"an encoding":                       {[]string{"--storage-media-type=application/vnd.kubernetes.protobuf"}, `--storage-media-type must be application/json, in which objects are stored, not "application/vnd.kubernetes.protobuf"`},
		"no data directory":                 {[]string{"--data-dir="}, "--data-dir must not be empty"},
		"an unknown plugin":                 {[]string{"--enable-admission-plugins=Nothing"}, `enable-admission-plugins plugin "Nothing" is unknown`},
		"a plugin on and off":               {[]string{"--escalation-check=false", "--enable-admission-plugins=ControllerEscalation"}, "[ControllerEscalation] in enable-admission-plugins and disable-admission-plugins overlapped"},
		"a plugin of Kubernetes on and off": {[]string{"--disable-admission-plugins=NamespaceLifecycle", "--enable-admission-plugins=NamespaceLifecycle"}, "[NamespaceLifecycle] in enable-admission-plugins and disable-admission-plugins overlapped"},
		"no port":                           {[]string{"--secure-port=0"}, "--secure-port must be between 1 and 65535, not 0"},
		"times for nothing":                 {[]string{"--serving-cert-duration=24h"}, "--serving-cert-duration, --serving-ca-duration and the flags beside them have an effect with --serving-cert-secret alone"},
		"no workers":                        {[]string{"--workers=0"}, "--workers must be at least 1, not 0"},
		"no answers":                        {[]string{"--hook-response-limit=0"}, "--hook-response-limit must be positive, not 0"},
		"no quantity":                       {[]string{"--hook-response-limit=much"}, "invalid argument \"much\" for \"--hook-response-limit\" flag"},
		"a small budget":                    {[]string{"--hook-response-budget=31Mi"}, "--hook-response-budget must be at least --hook-response-limit, not 31Mi"},
		"no tags":                           {[]string{"--hook-etag-budget=0"}, "--hook-etag-budget must be positive, not 0"},
		"a negative history":                {[]string{"--sync-history-bytes=-1"}, "--sync-history-bytes must not be negative, but is -1"},
		"no events":                         {[]string{"--events-qps=0"}, "--events-qps and --events-burst must be positive, not 0 and 25"},
		"no flush":                          {[]string{"--cache-flush-interval=0s"}, "--cache-flush-interval must be positive, not 0s"},
		"a bad selector":                    {[]string{"--target-label-selector=a=b=c"}, "--target-label-selector: "},
		"an unknown strategy":               {[]string{"--apply-strategy=guess"}, `--apply-strategy must be dynamic-apply or server-side-apply, not "guess"`},
		"a long manager":                    {[]string{"--apply-strategy-ssa-field-manager=" + strings.Repeat("x", 129)}, "must have at most 128 bytes, not 129"},
		"no namespace":                      {[]string{"--namespace="}, "--namespace must not be empty"},
		"two words for one":                 {[]string{"--leader-election-id=a", "--leader-elect-resource-name=b"}, "--leader-election-id=a and --leader-elect-resource-name=b contradict each other"},
		"yes and no":                        {[]string{"--leader-election", "--leader-elect=false"}, "--leader-election=true and --leader-elect=false contradict each other"},
		"another lock":                      {[]string{"--leader-election-resource-lock=configmaps"}, `--leader-elect-resource-lock must be leases, not "configmaps"`},
		"no name of a lease":                {[]string{"--leader-elect-resource-name="}, "--leader-elect-resource-name must not be empty"},
		"half a second":                     {[]string{"--leader-elect-lease-duration=1500ms"}, "--leader-elect-lease-duration must be in whole seconds, not 1.5s"},
		"a late deadline":                   {[]string{"--leader-elect-renew-deadline=15s"}, "--leader-elect-renew-deadline must be less than --leader-elect-lease-duration, not 15s"},
		"a short deadline":                  {[]string{"--leader-elect-renew-deadline=2s"}, "--leader-elect-renew-deadline must be more than 1.2 times --leader-elect-retry-period, not 2s"},
		"no retry":                          {[]string{"--leader-elect-retry-period=0"}, "--leader-elect-retry-period must be positive, not 0s"},
		"no election":                       {[]string{"--leader-elect=false", "--leader-elect-resource-name=", "--data-dir="}, "--data-dir must not be empty"},
		"several at a time":                 {[]string{"--workers=0", "--namespace="}, "not 0\n--namespace must not be empty"},
		"flags of old still":                {[]string{"--data-dir=", "--zap-log-level=4", "--zap-devel", "--metrics-address=0", "--discovery-interval=20s"}, "--data-dir must not be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := execute(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want %q in it", err, test.want)
			}
		})
	}
}
