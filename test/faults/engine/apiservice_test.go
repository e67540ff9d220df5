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

package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/fleet"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// apiService is the registration.
const apiService = "apiservice/v1alpha1.metacontroller.k8s.io"

// apiServiceUnavailable leads the registration to a port where nobody is.
func apiServiceUnavailable(t *testing.T, e *fixture.Environment) {
	figures := report.For(t, report.APIService)
	parents, away := report.Pick(20, 200), report.Pick(2*time.Second, 5*time.Minute)
	f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 2, Finalize: true})
	f.Create("before")
	f.Converge("creation")

	port := strings.TrimSpace(e.Kubectl(t, "get", apiService, "-o", "jsonpath={.spec.service.port}"))
	lead := func(port, available string) {
		e.Kubectl(t, "patch", apiService, "--type=merge", "-p", `{"spec":{"service":{"port":`+port+`}}}`)
		e.Kubectl(t, "wait", "--for=condition=Available="+available, "--timeout=3m", apiService)
	}
	lead("9", "False") // The port of discard, which nobody serves.
	began := time.Now()
	doomed := e.Kube.CoreV1().Namespaces()
	name := f.Namespace + "-doomed"
	if _, err := doomed.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := doomed.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Change("meanwhile", f.Names()...)
	took := f.Converge("a change while the APIService is unavailable")
	f.Delete(f.Names()[0])
	f.Converge("a deletion while the APIService is unavailable")
	cluster.Eventually(t, f.Limit, "the namespace to say why it stays", func(ctx context.Context) (bool, string) {
		n, err := doomed.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		shown := fmt.Sprint(n.Status.Conditions)
		return strings.Contains(shown, "metacontroller.k8s.io/v1alpha1"), shown
	})
	pause(t, away-time.Since(began))
	f.Create("new")
	f.Converge("a creation while the APIService is unavailable")
	down := time.Since(began)

	lead(port, "True")
	returned := time.Now()
	cluster.Eventually(t, f.Limit, "the namespace to be gone", func(ctx context.Context) (bool, string) {
		_, err := doomed.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	figures.Sayf("unavailable for %s: a change of %d parents converged in %s meanwhile", seconds(down), parents, seconds(took))
	figures.Sayf("a namespace that was deleted in it was gone %s after its end", seconds(time.Since(returned)))
}
