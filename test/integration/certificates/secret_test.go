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

package certificates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// name is that of the Secret in the manifests.
const name = "metacontroller-apiserver-authority"

// newOverlay returns the folder of a kustomization as the documentation has it.
func newOverlay(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	artifacts, err := filepath.Rel(folder, filepath.Join(cluster.Root(), "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- %[1]s/base\n"+
		"components:\n- %[1]s/components/external-etcd\n- %[1]s/components/shared-authority\n", artifacts)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestReplicasKeepTheirAuthorityWithTheRightsOfTheManifests lets replicas act as the service account of the manifests, which may read
// and write one Secret and one APIService. The clock is the test's, so that years pass.
func TestReplicasKeepTheirAuthorityWithTheRightsOfTheManifests(t *testing.T) {
	c := cluster.Start(t)
	overlay := newOverlay(t)
	c.Kubectl(t, "apply", "--server-side", "-k", overlay)
	// As the server does that registers itself.
	c.Kubectl(t, "apply", "--server-side", "-f", filepath.Join(cluster.Root(), "artifacts", "base", "apiservice.yaml"))
	args := c.Kubectl(t, "-n", "metacontroller", "get", "deployment", "metacontroller-apiserver", "-o", "jsonpath={.spec.template.spec.containers[0].args}")
	if want := "--serving-cert-secret=metacontroller/" + name; !strings.Contains(args, want) {
		t.Errorf("the server is started with %s, want %s", args, want)
	}
	// Without the controllers' rights, which are everything.
	c.Kubectl(t, "delete", "clusterrolebinding", "metacontroller-controllers")

	config := c.Config(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:metacontroller:metacontroller-apiserver"}
	client := cluster.NewClients(t, config).Kube.CoreV1().Secrets("metacontroller")
	trust, err := registration.NewTrust(config, types.NamespacedName{Namespace: "metacontroller", Name: "metacontroller-apiserver"})
	if err != nil {
		t.Fatal(err)
	}
	now := clocktesting.NewFakeClock(time.Now())
	replica := func(name string) *servingcert.Manager {
		return servingcert.New(servingcert.NewSecret(name, client), servingcert.Options{Registration: trust, Clock: now})
	}
	cluster.Eventually(t, time.Minute, "the rights to be known", func(ctx context.Context) (bool, string) {
		_, _, err := trust.Trusted(ctx)
		return err == nil, "the APIService cannot be read"
	})
	if err := replica("another").Ensure(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("got %v for another Secret, want it forbidden", err)
	}

	replicas := []*servingcert.Manager{replica(name), replica(name), replica(name), replica(name)}
	ensure := func() {
		t.Helper()
		var all sync.WaitGroup
		for _, r := range replicas {
			all.Go(func() {
				if err := r.Ensure(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	trusted := func() string {
		t.Helper()
		bundle, _, err := trust.Trusted(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(bundle)
	}
	authorities := func(n int) {
		t.Helper()
		// Replicas that write at the same time may have to try again.
		cluster.Eventually(t, time.Minute, "another number of authorities to be trusted", func(context.Context) (bool, string) {
			ensure()
			return strings.Count(trusted(), "BEGIN CERTIFICATE") == n, trusted()
		})
	}
	authorities(1)
	first := trusted()
	// The registration is that of this server, and none of one that has another Service, whose authority is another one, too.
	elsewhere, err := registration.NewTrust(config, types.NamespacedName{Namespace: "elsewhere", Name: "metacontroller-apiserver"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := elsewhere.Trusted(t.Context()); !errors.Is(err, servingcert.ErrNotRegistered) {
		t.Errorf("got %v for the registration of another server, want that there is none", err)
	}
	// Applying the manifests again is no reason for another one.
	c.Kubectl(t, "apply", "--server-side", "-k", overlay)
	authorities(1)
	if trusted() != first {
		t.Error("applying the manifests again has changed the authority")
	}
	now.Step(7 * 365 * 24 * time.Hour)
	authorities(2)
	now.Step(2 * time.Hour)
	authorities(2)
	now.Step(91 * 24 * time.Hour)
	authorities(1)
	if trusted() == first {
		t.Error("the authority was not replaced")
	}
	// On demand.
	c.Kubectl(t, "-n", "metacontroller", "annotate", "secret", name, servingcert.RotateAnnotation+"=now")
	authorities(2)
	left := c.Kubectl(t, "-n", "metacontroller", "get", "secret", name, "-o", "jsonpath={.metadata.annotations}")
	if strings.Contains(left, servingcert.RotateAnnotation) {
		t.Errorf("the annotation is still there: %s", left)
	}
}
