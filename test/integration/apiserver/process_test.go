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

package apiserver

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// What cannot watch what it needs would refuse every write for ever.
func TestWhatTheServerMayNotWatchIsSwitchedOff(t *testing.T) {
	c := cluster.Shared(t)
	kubeconfig := withFewRights(t, c)
	s := server.Start(t, c, server.Options{Kubeconfig: kubeconfig})
	c.KubectlInput(t, controller("few-rights"), "create", "-f", "-")
	log, err := os.ReadFile(s.Log())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"NamespaceLifecycle", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionWebhook", "APIPriorityAndFairness",
	} {
		if want := fmt.Sprintf("\"SWITCHED OFF until the next start\" part=%q reason=\"this server may not list", part); !strings.Contains(string(log), want) {
			t.Errorf("the log does not say %s", want)
		}
	}
	metrics := c.Kubectl(t, "get", "--raw", "/apis/metacontroller.k8s.io/v1alpha1")
	if !strings.Contains(metrics, "compositecontrollers") {
		t.Errorf("the API is not served: %s", metrics)
	}
}

// The documented order for a server that acts as somebody less than an administrator: its rights come first, and then nothing is
// missing when it starts.
func TestAServerThatIsNoAdministratorNeedsNoRestart(t *testing.T) {
	c := cluster.Start(t)
	if output, err := exec.CommandContext(t.Context(), server.Binary(t), "register", "roles", "--kubeconfig", c.Kubeconfig).CombinedOutput(); err != nil {
		t.Fatalf("applying the roles: %v\n%s", err, output)
	}
	s := server.Start(t, c, server.Options{Kubeconfig: withFewRights(t, c, "metacontroller-apiserver", "metacontroller-controllers")})
	c.KubectlInput(t, controller("with-rights"), "create", "-f", "-")
	c.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "compositecontroller", "with-rights")
	c.Kubectl(t, "delete", "compositecontroller", "with-rights")
	log, err := os.ReadFile(s.Log())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log), "SWITCHED OFF") {
		t.Error("a part of the server is switched off")
	}
}

// withFewRights makes a service account that may do what every aggregated server must, and what the given roles give.
func withFewRights(t *testing.T, c *cluster.Cluster, roles ...string) string {
	t.Helper()
	namespace := c.Namespace(t)
	account := "--serviceaccount=" + namespace + ":few-rights"
	c.Kubectl(t, "-n", namespace, "create", "serviceaccount", "few-rights")
	for _, role := range roles {
		c.Kubectl(t, "create", "clusterrolebinding", namespace+"-"+role, "--clusterrole="+role, account)
		t.Cleanup(func() { afterwards(t, c, "", "delete", "clusterrolebinding", namespace+"-"+role) })
	}
	c.Kubectl(t, "create", "clusterrolebinding", namespace, "--clusterrole=system:auth-delegator", account)
	c.Kubectl(t, "-n", "kube-system", "create", "rolebinding", namespace, "--role=extension-apiserver-authentication-reader", account)
	t.Cleanup(func() {
		afterwards(t, c, "", "delete", "clusterrolebinding", namespace)
		afterwards(t, c, "", "-n", "kube-system", "delete", "rolebinding", namespace)
	})
	token := strings.TrimSpace(c.Kubectl(t, "-n", namespace, "create", "token", "few-rights"))
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTwoServersDoNotShareADataDirectory(t *testing.T) {
	c := cluster.Shared(t)
	s := server.Start(t, c, server.Options{})
	second := exec.CommandContext(t.Context(), server.Binary(t), "--kubeconfig", c.Kubeconfig, "--data-dir", s.DataDir(), "--secure-port", strconv.Itoa(s.Port()))
	second.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir())
	output, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "is in use by process") {
		t.Errorf("the second server ended with %v:\n%s", err, output)
	}
	if status, err := s.Get(t.Context(), "/readyz"); status != http.StatusOK {
		t.Errorf("the first server was disturbed: %d %v", status, err)
	}
}

func TestAnEtcdOfTheOperatorIsUsed(t *testing.T) {
	c := cluster.Shared(t)
	args := []string{"--etcd-servers", c.EtcdServers, "--etcd-prefix", "/test-external"}
	s := server.Start(t, c, server.Options{Args: args})
	c.KubectlInput(t, controller("external"), "create", "-f", "-")
	if _, err := os.Stat(filepath.Join(s.DataDir(), "etcd")); !os.IsNotExist(err) {
		t.Errorf("there is an embedded etcd as well: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	// Another server on another machine sees the same objects.
	server.Start(t, c, server.Options{Args: args})
	c.Kubectl(t, "get", "compositecontroller", "external")
	c.Kubectl(t, "delete", "compositecontroller", "external", "--wait=false")
}

func TestTheServerEndsWhenAsked(t *testing.T) {
	c := cluster.Shared(t)
	s := server.Start(t, c, server.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.KubectlInput(t, controller("listed"), "create", "-f", "-")
	watch := exec.CommandContext(ctx, c.KubectlPath, "--kubeconfig", c.Kubeconfig, "get", "compositecontrollers", "--watch")
	printed, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = watch.Wait()
	}()
	rows := make(chan string, 100)
	go func() {
		defer close(rows)
		for lines := bufio.NewScanner(printed); lines.Scan(); {
			rows <- lines.Text()
		}
	}()
	shows := func(name string) {
		t.Helper()
		cluster.Eventually(t, limit, "the row of "+name, func(context.Context) (bool, string) {
			select {
			case row, open := <-rows:
				if !open {
					t.Fatal("the watch ended before the server was stopped")
				}
				return strings.HasPrefix(row, name+" "), row
			default:
				return false, "there is no row"
			}
		})
	}
	shows("listed")
	// What is created now is shown by a watch that is under way.
	c.KubectlInput(t, controller("watched"), "create", "-f", "-")
	shows("watched")
	if err := s.Stop(); err != nil {
		t.Errorf("the server did not exit with status 0: %v", err)
	}
	log, err := os.ReadFile(s.Log())
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"DATA RACE", "panic:"} {
		if strings.Contains(string(log), bad) {
			t.Errorf("the log holds %q", bad)
		}
	}
}
