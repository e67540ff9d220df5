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
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// texts are fields of objects of Kubernetes that are texts, whatever they look like, and lists of such fields.
var texts = map[string]bool{
	"name": true, "namespace": true, "serviceName": true, "serviceAccountName": true, "priorityClassName": true, "secretName": true, "storageClassName": true,
	"resourceNames": true, "namespaces": true, "dnsNames": true, "app.kubernetes.io/name": true, "app.kubernetes.io/instance": true, "values": true,
}

// others calls report for each field in a value that is no text and should be one.
func others(field string, value any, report func(field string, value any)) {
	switch v := value.(type) {
	case map[string]any:
		for name, below := range v {
			others(name, below, report)
		}
	case []any:
		for _, element := range v {
			others(field, element, report)
		}
	case string:
	default:
		if texts[field] {
			report(field, value)
		}
	}
}

// In YAML 2024 is a number, 1e3 is one, and no is a boolean, as which the cluster refuses them for names and labels.
func TestNamesThatLookLikeSomethingElseAreTexts(t *testing.T) {
	const everything = imageValues + "serviceMonitor: {enabled: true}\nnetworkPolicy: {enabled: true}\n"
	for name, test := range map[string]struct{ values, release, namespace string }{
		"a label that is a number":         {values: "nameOverride: '2024'\n"},
		"a name that is a boolean":         {values: "fullnameOverride: 'no'\n"},
		"an account that is a number":      {values: "serviceAccount: {name: '1'}\n"},
		"a priority that is a number":      {values: "priorityClassName: '1e3'\n"},
		"a class of storage that is none":  {values: "store: {embedded: {storageClassName: 'null'}}\n"},
		"a Secret that is a number":        {values: "store: {type: external, external: {servers: ['https://etcd:2379'], secretName: '7'}}\n"},
		"a namespace that is a number":     {values: "namespaceOverride: '12345'\n"},
		"a release that is a number":       {release: "12345"},
		"a release that is a float":        {release: "1e3"},
		"a namespace of such a release":    {namespace: "1e3"},
		"everything, with an etcd":         {values: externalValues + "replicas: 2\nnameOverride: '2024'\nfullnameOverride: 'yes'\n", release: "1e3", namespace: "12345"},
		"everything, with cert-manager":    {values: externalValues + "certManager: {enabled: true}\nfullnameOverride: 'no'\n", release: "12345", namespace: "1e3"},
		"everything, with roles by labels": {values: "clusterRole: {aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}}\nfullnameOverride: 'on'\n", namespace: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			release, namespace := "release", "metacontroller"
			if test.release != "" {
				release = test.release
			}
			if test.namespace != "" {
				namespace = test.namespace
			}
			r, err := render(t.Context(), engine.Engine{Strict: true}, everything+test.values, common.ReleaseOptions{Name: release, Namespace: namespace})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range r.Objects {
				kind := o.GetKind()
				others("", o.Object, func(field string, value any) { t.Errorf("a %s has the %s %v, a %T", kind, field, value, value) })
				for _, path := range [][]string{{"metadata", "labels"}, {"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
					if _, _, err := unstructured.NestedStringMap(o.Object, path...); err != nil {
						t.Errorf("a %s has labels that are none: %v", kind, err)
					}
				}
			}
		})
	}
}

// Helm takes null for a value that is not there, also where the chart has a default.
func TestValuesMayBeNull(t *testing.T) {
	for _, name := range []string{"podDisruptionBudget", "podLabels", "podAnnotations", "commandArgs", "env", "volumes", "volumeMounts", "affinity", "tolerations"} {
		t.Run(name, func(t *testing.T) {
			values := imageValues + externalValues + "replicas: 2\n"
			want, err := Render(t.Context(), values, "metacontroller")
			if err != nil {
				t.Fatal(err)
			}
			got, err := render(t.Context(), engine.Engine{}, values+name+": null\n", common.ReleaseOptions{Name: "release", Namespace: "metacontroller"})
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(got.Text) != strings.TrimSpace(want.Text) {
				t.Error("it is not as if the value were empty")
			}
		})
	}
}
