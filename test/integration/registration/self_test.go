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

package registration

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// An installed server has the rights of the manifests and registers itself, as Self does, on a clock of its own.
type installed struct {
	plane *cluster.Cluster
	clock *clocktesting.FakeClock
	// mu guards bundle, its authority.
	mu     sync.Mutex
	bundle []byte
	// looks counts how often it has begun to look at the registration.
	looks atomic.Int64
}

// count counts the looks.
type count struct {
	next  http.RoundTripper
	looks *atomic.Int64
}

func (c *count) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/apiservices/"+apiService) {
		c.looks.Add(1)
	}
	return c.next.RoundTrip(request)
}

// install applies the base, without the rights of the controllers, which are everything.
func install(t *testing.T, plane *cluster.Cluster) *installed {
	t.Helper()
	applied(t, plane, "base")
	plane.Kubectl(t, "delete", "clusterrolebinding", "metacontroller-controllers")
	i := &installed{plane: plane, clock: clocktesting.NewFakeClock(time.Now())}
	i.issue(t)
	return i
}

// issue gives the server another authority.
func (i *installed) issue(t *testing.T) string {
	t.Helper()
	files, err := servingcert.Ensure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.bundle, err = os.ReadFile(files.CAFile); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(i.bundle)
}

// run runs Self until the function that it returns is called, or the test ends.
func (i *installed) run(t *testing.T) func() {
	t.Helper()
	account := rights.Account{Namespace: "metacontroller", Name: "metacontroller-apiserver"}
	config := i.plane.Config(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: account.User(), Groups: account.Groups()}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &count{next: next, looks: &i.looks} })
	self := registration.Self{
		Config: config, ServiceNamespace: "metacontroller", ServiceName: "metacontroller-apiserver", Owner: registration.ServerRole, Clock: i.clock,
		Authority: func(context.Context) ([]byte, error) {
			i.mu.Lock()
			defer i.mu.Unlock()
			return i.bundle, nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { self.Run(ctx) })
	stop := func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// collected is how long the garbage collector may take: it takes notice of new kinds every half a minute, and does nothing for as long again
// while one of them cannot be listed.
const collected = 4 * time.Minute

// eventually waits until a field of the registration has a value; the clock goes on meanwhile.
func (i *installed) eventually(t *testing.T, jsonpath, want string) {
	t.Helper()
	i.eventuallyWithin(t, time.Minute, jsonpath, want)
}

func (i *installed) eventuallyWithin(t *testing.T, limit time.Duration, jsonpath, want string) {
	t.Helper()
	cluster.Eventually(t, limit, jsonpath+" to be "+want, func(ctx context.Context) (bool, string) {
		i.clock.Step(time.Minute)
		got, err := fieldOf(ctx, i.plane, "apiservice/"+apiService, jsonpath)
		return err == nil && got == want, fmt.Sprintf("%q %v", got, err)
	})
}

// look returns when the server has begun to look at the registration for the third time from now: two looks are over then.
func (i *installed) look(t *testing.T) {
	t.Helper()
	want := i.looks.Load() + 3
	cluster.Eventually(t, cluster.Limit, "the server to look again", func(context.Context) (bool, string) {
		i.clock.Step(time.Minute)
		return i.looks.Load() >= want, "it does not"
	})
}

func decode(t *testing.T, bundle string) []byte {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(bundle)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// together returns several bundles as one.
func together(t *testing.T, bundles ...string) string {
	t.Helper()
	var all []byte
	for _, bundle := range bundles {
		all = append(all, decode(t, bundle)...)
	}
	return base64.StdEncoding.EncodeToString(all)
}

func TestAServerInTheClusterRegistersItself(t *testing.T) {
	plane := cluster.Shared(t)
	i := install(t, plane)
	stop := i.run(t)
	i.eventually(t, "{.spec.service.namespace}/{.spec.service.name}:{.spec.service.port}", "metacontroller/metacontroller-apiserver:443")

	// Its authority is kept current, whoever changes it.
	first := field(t, plane, "apiservice/"+apiService, "{.spec.caBundle}")
	former := i.issue(t)
	i.eventually(t, "{.spec.caBundle}", together(t, former, first))
	own := i.issue(t)
	i.eventually(t, "{.spec.caBundle}", together(t, own, former, first))
	// What is trusted besides, as during a rotation, is left alone.
	besides := together(t, former, own)
	plane.Kubectl(t, "patch", "apiservice", apiService, "--type=merge", "-p", `{"spec":{"caBundle":"`+besides+`"}}`)
	i.look(t)
	if bundle := field(t, plane, "apiservice/"+apiService, "{.spec.caBundle}"); bundle != besides {
		t.Errorf("the server took away what is trusted besides: %s", decode(t, bundle))
	}
	plane.Kubectl(t, "patch", "apiservice", apiService, "--type=merge", "-p", `{"spec":{"service":{"port":444}}}`)
	i.eventually(t, "{.spec.service.port}", "443")

	// Somebody takes it out of the cluster, and it does not come back before the server starts again.
	plane.Kubectl(t, "delete", "apiservice", apiService)
	i.look(t)
	stop()
	if name := field(t, plane, "apiservice/"+apiService, "{.metadata.name}"); name != "" {
		t.Errorf("a registration that was deleted is there again: %s", name)
	}
	stop = i.run(t)
	i.eventually(t, "{.metadata.ownerReferences[*].name}", "metacontroller-apiserver")

	// It goes with its owner, and comes back with the next one of that name.
	plane.Kubectl(t, "delete", "clusterrole", registration.ServerRole)
	i.eventuallyWithin(t, collected, "{.metadata.name}", "")
	plane.Kubectl(t, "apply", "--server-side", "-k", filepath.Join(cluster.Root(), "artifacts", "base"))
	plane.Kubectl(t, "delete", "clusterrolebinding", "metacontroller-controllers")
	i.eventually(t, "{.metadata.ownerReferences[*].uid}", plane.Kubectl(t, "get", "clusterrole", registration.ServerRole, "-o", "jsonpath={.metadata.uid}"))
	stop()

	// It goes with the installation.
	plane.Kubectl(t, "delete", "clusterrole", registration.ServerRole)
	i.eventuallyWithin(t, collected, "{.metadata.name}", "")
}

func TestAServerInTheClusterHidesNothing(t *testing.T) {
	plane := cluster.Shared(t)
	i := install(t, plane)
	const crd = "decoratorcontrollers.metacontroller.k8s.io"
	plane.DefineManifests(t, strings.Replace(definition("DecoratorController", "decoratorcontrollers", "metacontroller.k8s.io", "v1alpha1"), "Namespaced", "Cluster", 1))
	i.eventually(t, `{.metadata.labels.kube-aggregator\.kubernetes\.io/automanaged}`, "true")
	i.run(t)
	i.look(t)
	if service := field(t, plane, "apiservice/"+apiService, "{.spec.service}"); service != "" {
		t.Errorf("the registration of the definitions was changed to %s", service)
	}
	// The migration ends with their deletion.
	plane.Kubectl(t, "delete", "crd", crd)
	i.eventually(t, "{.spec.service.name}", "metacontroller-apiserver")
}

// TestTheBinaryRegistersItself has no Service, so that the cluster does not reach it. The second server takes the place of the first.
func TestTheBinaryRegistersItself(t *testing.T) {
	plane := cluster.Shared(t)
	applied(t, plane, "base")
	start := func(t *testing.T, args ...string) *process.Process {
		t.Helper()
		running, err := process.Start(process.Command(t.Context(), server.Binary(t), append([]string{
			"--kubeconfig", plane.Kubeconfig, "--data-dir", t.TempDir(), "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(freeport.Find(t)),
			"--register", "--register-owner", "metacontroller-apiserver",
		}, args...)...), process.Options{Name: "the server", Log: filepath.Join(t.TempDir(), "server.log")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := running.Stop(time.Minute); err != nil {
				t.Errorf("stopping the server: %v\n%s", err, running.Tail(20))
			}
		})
		return running
	}
	// trusts waits until the cluster trusts as many authorities, and those that the server has.
	trusts := func(t *testing.T, running *process.Process, n int, authority func(ctx context.Context) string) {
		t.Helper()
		cluster.Eventually(t, cluster.Limit, "the cluster to trust the server", func(ctx context.Context) (bool, string) {
			bundle, err := fieldOf(ctx, plane, "apiservice/"+apiService, "{.spec.caBundle}")
			if err != nil || bundle == "" {
				return false, bundle + running.Tail(5)
			}
			got, want := blocks(string(decode(t, bundle))), blocks(authority(ctx))
			return len(got) == n && slices.Equal(got, want), strings.Join(got, "") + running.Tail(5)
		})
	}
	t.Run("authority in a file", func(t *testing.T) {
		certificates := t.TempDir()
		trusts(t, start(t, "--cert-dir", certificates), 1, func(context.Context) string {
			text, _ := os.ReadFile(servingcert.FilesIn(certificates).CAFile)
			return string(text)
		})
	})
	t.Run("authority in a Secret", func(t *testing.T) {
		running := start(t, "--serving-cert-secret", "metacontroller/authority", "--serving-ca-propagation", "5s")
		data := func(ctx context.Context, key string) string {
			encoded, err := fieldOf(ctx, plane, "secret/authority", "{.data."+strings.ReplaceAll(key, ".", `\.`)+"}")
			if err != nil {
				return ""
			}
			return string(decode(t, encoded))
		}
		authorities := func(ctx context.Context) string { return data(ctx, servingcert.AuthoritiesKey) }
		// That of the first server is trusted on.
		trusts(t, running, 2, authorities)
		first := data(t.Context(), "tls.crt")
		plane.Kubectl(t, "annotate", "secret", "authority", "-n", "metacontroller", servingcert.RotateAnnotation+"=now")
		trusts(t, running, 3, authorities)
		cluster.Eventually(t, cluster.Limit, "the next authority to sign", func(ctx context.Context) (bool, string) {
			now := data(ctx, "tls.crt")
			return now != "" && now != first, now + running.Tail(5)
		})
		trusts(t, running, 3, authorities)
		// A registration that is gone is made again, with all of them, when the server starts again.
		plane.Kubectl(t, "delete", "apiservice", apiService)
		trusts(t, start(t, "--serving-cert-secret", "metacontroller/authority"), 3, authorities)
	})
}

// blocks returns the blocks of a text in PEM form, sorted.
func blocks(text string) []string {
	found := slices.Collect(strings.SplitAfterSeq(strings.TrimSpace(text)+"\n", "-----END CERTIFICATE-----\n"))
	slices.Sort(found)
	return slices.DeleteFunc(found, func(block string) bool { return block == "" })
}
