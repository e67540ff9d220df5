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

package chart

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// define makes the kinds of cert-manager and of the Prometheus operator, without schemas.
func define(t *testing.T, plane *cluster.Cluster) {
	t.Helper()
	var manifests strings.Builder
	for _, kind := range []struct{ kind, plural, group string }{
		{"Issuer", "issuers", "cert-manager.io"}, {"Certificate", "certificates", "cert-manager.io"}, {"ServiceMonitor", "servicemonitors", "monitoring.coreos.com"},
	} {
		manifests.WriteString(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + kind.plural + `.` + kind.group + `},
			spec: {group: ` + kind.group + `, scope: Namespaced, names: {kind: ` + kind.kind + `, plural: ` + kind.plural + `},
			versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}` + "\n---\n")
	}
	plane.DefineManifests(t, manifests.String())
}

// TestAClusterAcceptsBoth applies what the chart makes, as Helm does, and then the manifests, of which nothing is new. Fields with defaults in
// them conflict all the same, which who moves from one to the other is told.
func TestAClusterAcceptsBoth(t *testing.T) {
	plane := cluster.Start(t)
	define(t, plane)
	for _, shape := range []struct {
		name, overlay, values, workload string
		pods                            int
	}{
		{"embedded etcd", "single-node", "networkPolicy: {enabled: true}\n", "statefulset", 1},
		{"external etcd", "production", externalValues + "certManager: {enabled: true}\nserviceMonitor: {enabled: true}\nreplicas: 2\n", "deployment", 2},
	} {
		t.Run(shape.name, func(t *testing.T) {
			// The image of the overlays.
			rendered, err := Render(t.Context(), "image: {tag: v1.2.3}\n"+shape.values, "metacontroller")
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(rendered.Text, `"metacontroller-apiserver:v1.2.3"`, "metacontroller-apiserver")
			plane.KubectlInput(t, `{apiVersion: v1, kind: Namespace, metadata: {name: metacontroller}}`, "apply", "--server-side", "-f", "-")
			if output := plane.KubectlInput(t, text, "apply", "--server-side", "--force-conflicts", "--field-manager=helm", "-f", "-"); strings.Contains(output, "Warning") {
				t.Errorf("the cluster warns:\n%s", output)
			}
			cluster.Eventually(t, time.Minute, "its Pods", func(ctx context.Context) (bool, string) {
				output, err := plane.TryKubectl(ctx, "", "get", "pods", "-n", "metacontroller", "-o", "name")
				return err == nil && strings.Count(output, "pod/metacontroller-apiserver-") == shape.pods, output
			})
			generation := func() string {
				return plane.Kubectl(t, "get", shape.workload, "metacontroller-apiserver", "-n", "metacontroller", "-o", "jsonpath={.metadata.generation}")
			}
			before := generation()
			folder := filepath.Join(cluster.Root(), "artifacts", "overlays", shape.overlay)
			plane.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", folder)
			if after := generation(); after != before {
				t.Errorf("the manifests change the %s of the chart: its generation went from %s to %s", shape.workload, before, after)
			}
			plane.KubectlInput(t, text, "delete", "--wait=false", "-f", "-")
			// The controller of namespaces looks again half of the Pods' grace period later, which is up to 100 seconds.
			plane.Kubectl(t, "delete", "namespace", "metacontroller", "--timeout=3m")
		})
	}
}
