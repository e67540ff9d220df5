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
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
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
}

// install applies the base, without the rights of the controllers, which are everything.
func install(t *testing.T, plane *cluster.Cluster) *installed {
	t.Helper()
	plane.Kubectl(t, "apply", "--server-side", "-k", filepath.Join(cluster.Root(), "artifacts", "base"))
	plane.Kubectl(t, "delete", "clusterrolebinding", "metacontroller-controllers")
	i := &installed{plane: plane, clock: clocktesting.NewFakeClock(time.Now())}
	i.issue(t)
	return i
}

// issue gives the server another authority.
func (i *installed) issue(t *testing.T) string {
	t.Helper()
	files, err := servingcert.Ensure(t.TempDir())
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
	self := registration.Self{
		Config: config, ServiceNamespace: "metacontroller", ServiceName: "metacontroller-apiserver", Owner: registration.ServerRole, Clock: i.clock,
		Authority: func() ([]byte, error) {
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

// eventually waits until a field of the registration has a value; the clock goes on meanwhile.
func (i *installed) eventually(t *testing.T, jsonpath, want string) {
	t.Helper()
	cluster.Eventually(t, time.Minute, jsonpath+" to be "+want, func(ctx context.Context) (bool, string) {
		i.clock.Step(time.Minute)
		output, err := i.plane.TryKubectl(ctx, "", "get", "apiservice", apiService, "--ignore-not-found", "-o", "jsonpath="+jsonpath)
		return err == nil && output == want, output
	})
}

func TestAServerInTheClusterRegistersItself(t *testing.T) {
	plane := cluster.Start(t)
	i := install(t, plane)
	stop := i.run(t)
	i.eventually(t, "{.spec.service.namespace}/{.spec.service.name}:{.spec.service.port}", "metacontroller/metacontroller-apiserver:443")

	// Its authority is kept current, whoever changes it.
	i.eventually(t, "{.spec.caBundle}", i.issue(t))
	plane.Kubectl(t, "patch", "apiservice", apiService, "--type=merge", "-p", `{"spec":{"service":{"port":444}}}`)
	i.eventually(t, "{.spec.service.port}", "443")

	// Somebody takes it out of the cluster, and it does not come back before the server starts again.
	plane.Kubectl(t, "delete", "apiservice", apiService)
	steps := i.clock
	for range 3 {
		cluster.Eventually(t, time.Minute, "the server to look again", func(context.Context) (bool, string) {
			return steps.HasWaiters(), "it does not wait"
		})
		steps.Step(time.Minute)
	}
	stop()
	if output := plane.Kubectl(t, "get", "apiservice", apiService, "--ignore-not-found"); output != "" {
		t.Errorf("a registration that was deleted is there again: %s", output)
	}
	stop = i.run(t)
	i.eventually(t, "{.metadata.ownerReferences[*].name}", "metacontroller-apiserver")
	stop()

	// It goes with the installation.
	plane.Kubectl(t, "delete", "clusterrole", registration.ServerRole)
	i.eventually(t, "{.metadata.name}", "")
}

func TestAServerInTheClusterHidesNothing(t *testing.T) {
	plane := cluster.Start(t)
	i := install(t, plane)
	const crd = "decoratorcontrollers.metacontroller.k8s.io"
	plane.DefineManifests(t, strings.Replace(definition("DecoratorController", "decoratorcontrollers", "metacontroller.k8s.io", "v1alpha1"), "Namespaced", "Cluster", 1))
	i.eventually(t, `{.metadata.labels.kube-aggregator\.kubernetes\.io/automanaged}`, "true")
	i.run(t)
	for range 3 {
		cluster.Eventually(t, time.Minute, "the server to look again", func(context.Context) (bool, string) {
			return i.clock.HasWaiters(), "it does not wait"
		})
		i.clock.Step(time.Minute)
	}
	if service := plane.Kubectl(t, "get", "apiservice", apiService, "-o", "jsonpath={.spec.service}"); service != "" {
		t.Errorf("the registration of the definitions was changed to %s", service)
	}
	// The migration ends with their deletion.
	plane.Kubectl(t, "delete", "crd", crd)
	i.eventually(t, "{.spec.service.name}", "metacontroller-apiserver")
}

// TestTheBinaryRegistersItself has no Service, so that the cluster does not reach it.
func TestTheBinaryRegistersItself(t *testing.T) {
	plane := cluster.Start(t)
	plane.Kubectl(t, "apply", "--server-side", "-k", filepath.Join(cluster.Root(), "artifacts", "base"))
	data := t.TempDir()
	running, err := process.Start(process.Command(t.Context(), server.Binary(t), "--kubeconfig", plane.Kubeconfig, "--data-dir", data,
		"--bind-address", "127.0.0.1", "--secure-port", freePort(t), "--register", "--register-owner", "metacontroller-apiserver"),
		process.Options{Name: "the server", Log: filepath.Join(t.TempDir(), "server.log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(time.Minute); err != nil {
			t.Errorf("stopping the server: %v\n%s", err, running.Tail(20))
		}
	})
	cluster.Eventually(t, 2*time.Minute, "the server to register itself", func(ctx context.Context) (bool, string) {
		output, err := plane.TryKubectl(ctx, "", "get", "apiservice", apiService, "--ignore-not-found", "-o", "jsonpath={.spec.caBundle}")
		bundle, _ := os.ReadFile(servingcert.FilesIn(servingcert.Directory(data)).CAFile)
		return err == nil && output != "" && output == base64.StdEncoding.EncodeToString(bundle), output + running.Tail(5)
	})
}

// freePort returns a port at which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // Nothing was written.
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
