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
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

const (
	image, tag = "example.org/metacontroller-apiserver", "v1.2.3"
	// imageValues name the image.
	imageValues = "image: {repository: " + image + ", tag: " + tag + "}\n"
	// externalValues are those of an etcd cluster at the address that the manifests have.
	externalValues = "store: {type: external, external: {servers: ['https://etcd.metacontroller.svc:2379']}}\n"
)

// helmLabels are labels that the chart adds, as Helm asks for. They are the only difference in an object.
var helmLabels = []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"}

// onlyManifests are objects that the chart leaves to Helm: it makes the namespace when it is asked to.
var onlyManifests = []string{"Namespace /metacontroller"}

// shapes are what the manifests make, and the values with which the chart makes the same.
var shapes = map[string]struct {
	kustomization Kustomization
	values        string
}{
	"single-node":     {Kustomization{Resources: []string{"overlays/single-node"}}, ""},
	"least-privilege": {Kustomization{Resources: []string{"overlays/least-privilege"}}, "rbac: {leastPrivilege: true}\n"},
	"production":      {Kustomization{Resources: []string{"overlays/production"}}, externalValues + "certManager: {enabled: true}\nreplicas: 2\n"},
	"external etcd, one replica with an authority in a Secret": {
		Kustomization{
			Resources:  []string{"base"},
			Components: []string{"components/external-etcd", "components/shared-authority", "components/priority-and-fairness"},
		},
		externalValues,
	},
	"external etcd, several replicas with an authority in a Secret": {
		Kustomization{
			Resources: []string{"base"},
			Components: []string{
				"components/external-etcd", "components/shared-authority", "components/high-availability", "components/priority-and-fairness",
			},
		},
		externalValues + "replicas: 2\n",
	},
	"external etcd without TLS, as the page says": {
		Kustomization{
			Resources:  []string{"base"},
			Components: []string{"components/external-etcd", "components/shared-authority", "components/priority-and-fairness"},
			More:       patchesOfThePage("etcd-cafile"),
		},
		"store: {type: external, external: {servers: ['http://etcd.metacontroller.svc:2379']}}\n",
	},
	"single node with files of yours, as the page says": {
		Kustomization{Resources: []string{"overlays/single-node"}, More: patchesOfThePage("encryption-provider-config")},
		`
commandArgs: [--encryption-provider-config=/etc/metacontroller/encryption/config.yaml]
volumes: [{name: encryption, secret: {secretName: metacontroller-encryption}}]
volumeMounts: [{name: encryption, mountPath: /etc/metacontroller/encryption, readOnly: true}]
`,
	},
	"network policy": {
		Kustomization{Resources: []string{"overlays/single-node"}, Components: []string{"components/network-policy"}}, "networkPolicy: {enabled: true}\n",
	},
	"single node with cert-manager": {
		Kustomization{Resources: []string{"overlays/single-node"}, Components: []string{"components/cert-manager"}}, "certManager: {enabled: true}\n",
	},
	"without priority and fairness": {
		Kustomization{Resources: []string{"base"}, Components: []string{"components/embedded-etcd"}}, "priorityAndFairness: {enabled: false}\n",
	},
}

// patchesOfThePage returns the patches in the one kustomization of docs/operations/install.md that has a text. Without it there are none.
func patchesOfThePage(text string) string {
	page, err := os.ReadFile(filepath.Join(cluster.Root(), "docs", "operations", "install.md"))
	if err != nil {
		return ""
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if _, patches, ok := strings.Cut(block[1], "patches:\n"); ok && strings.Contains(patches, text) {
			return "patches:\n" + patches
		}
	}
	return ""
}

// identify names an object.
func identify(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// sorted returns objects by their names, without what may differ.
func sorted(objects []*unstructured.Unstructured) []map[string]any {
	objects = slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return slices.Contains(onlyManifests, identify(o)) })
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int { return cmp.Compare(identify(a), identify(b)) })
	var list []map[string]any
	for _, o := range objects {
		labels := o.GetLabels()
		maps.DeleteFunc(labels, func(name, _ string) bool { return slices.Contains(helmLabels, name) })
		o.SetLabels(labels)
		list = append(list, o.Object)
	}
	return list
}

func TestTheChartMakesTheSameObjectsAsTheManifests(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			want, err := shape.kustomization.Build(t.TempDir(), image, tag)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Render(t.Context(), imageValues+shape.values, "metacontroller")
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Objects) < 10 {
				t.Errorf("there are %d objects, too few to say anything", len(got.Objects))
			}
			for _, o := range got.Objects {
				for _, label := range helmLabels {
					if o.GetLabels()[label] == "" {
						t.Errorf("%s has no label %s", identify(o), label)
					}
				}
			}
			if difference := gocmp.Diff(sorted(want), sorted(got.Objects)); difference != "" {
				t.Errorf("manifests (-) and chart (+) differ:\n%s", difference)
			}
		})
	}
}

// The kustomization of artifacts/monitoring has alerts and a dashboard besides, which the chart has not.
func TestTheChartHasTheServiceMonitorOfTheManifests(t *testing.T) {
	manifests, err := Kustomization{Resources: []string{"monitoring"}}.Build(t.TempDir(), image, tag)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := Render(t.Context(), "serviceMonitor: {enabled: true}\n", "metacontroller")
	if err != nil {
		t.Fatal(err)
	}
	wanted := []string{"ClusterRole /metacontroller-metrics-reader", "ServiceMonitor metacontroller/metacontroller-apiserver"}
	only := func(objects []*unstructured.Unstructured) []map[string]any {
		return sorted(slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return !slices.Contains(wanted, identify(o)) }))
	}
	want, got := only(manifests), only(rendered.Objects)
	if len(want) != len(wanted) {
		t.Fatalf("the manifests have %d of %q", len(want), wanted)
	}
	if difference := gocmp.Diff(want, got); difference != "" {
		t.Errorf("manifests (-) and chart (+) differ:\n%s", difference)
	}
}

// endpoint returns the one endpoint of the ServiceMonitor that the chart makes with values.
func endpoint(t *testing.T, values string) map[string]any {
	t.Helper()
	r, err := Render(t.Context(), "serviceMonitor: {enabled: true}\n"+values, "metacontroller")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Objects {
		if o.GetKind() != "ServiceMonitor" {
			continue
		}
		endpoints, _, err := unstructured.NestedSlice(o.Object, "spec", "endpoints")
		if err != nil || len(endpoints) != 1 {
			t.Fatalf("got the endpoints %v, %v", endpoints, err)
		}
		one, _ := endpoints[0].(map[string]any)
		return one
	}
	t.Fatal("there is no ServiceMonitor")
	return nil
}

// The alerts and the dashboard select by job, which is the name of the Service unless somebody says something else.
func TestAlertsFindAServerOfAnotherName(t *testing.T) {
	want := []any{map[string]any{"targetLabel": "job", "replacement": "metacontroller-apiserver"}}
	if got := endpoint(t, "fullnameOverride: server\n")["relabelings"]; !gocmp.Equal(want, got) {
		t.Errorf("got the relabelings %v, want %v", got, want)
	}
}

// Prometheus sends its token: where the authority is known, it looks to whom.
func TestPrometheusVerifiesTheServerWhereItCan(t *testing.T) {
	want := map[string]any{
		"ca":         map[string]any{"secret": map[string]any{"name": "server-serving", "key": "ca.crt"}},
		"serverName": "server.metacontroller.svc",
	}
	if got := endpoint(t, "fullnameOverride: server\ncertManager: {enabled: true}\n")["tlsConfig"]; !gocmp.Equal(want, got) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestHelmFindsNothingToComplainOf(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			values, err := parse(imageValues + shape.values)
			if err != nil {
				t.Fatal(err)
			}
			result := lint.RunAll(folder(), values, "metacontroller")
			for _, message := range result.Messages {
				// An icon is for catalogs.
				if !strings.Contains(message.Error(), "icon is recommended") {
					t.Errorf("helm lint says: %s", message.Error())
				}
			}
		})
	}
}
