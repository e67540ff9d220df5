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
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/engine"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

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
	"definitions": {
		Kustomization{Resources: []string{"overlays/definitions"}}, "store: {type: definitions}\n",
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

// patchesOfThePage returns the patches in the one kustomization of docs/operations/configure.md that has a text. Without it there are none.
func patchesOfThePage(text string) string {
	page, err := os.ReadFile(filepath.Join(cluster.Root(), "docs", "operations", "configure.md"))
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

// egressOfThePolicy returns where the chart's NetworkPolicy lets the server connect to.
func egressOfThePolicy(t *testing.T) []networkingv1.NetworkPolicyEgressRule {
	t.Helper()
	r, err := Render(t.Context(), "networkPolicy: {enabled: true}\n", "metacontroller")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Objects {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		var policy networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
			t.Fatal(err)
		}
		return policy.Spec.Egress
	}
	t.Fatal("there is no NetworkPolicy")
	return nil
}

// Network plugins such as Cilium take the addresses of an ipBlock for those outside of the cluster: Pods, nodes and the kube-apiserver are not
// among them.
func TestTheNetworkPolicyNeedsNoAddressesOfTheCluster(t *testing.T) {
	rules := egressOfThePolicy(t)
	pods := func(peer networkingv1.NetworkPolicyPeer) bool {
		return peer.NamespaceSelector != nil && len(peer.NamespaceSelector.MatchLabels)+len(peer.NamespaceSelector.MatchExpressions) == 0 && peer.PodSelector == nil
	}
	if !slices.ContainsFunc(rules, func(rule networkingv1.NetworkPolicyEgressRule) bool {
		return len(rule.Ports) == 0 && slices.ContainsFunc(rule.To, pods)
	}) {
		t.Errorf("no rule is for the Pods of all namespaces, where hooks and etcd are: %v", rules)
	}
	for _, port := range []int{443, 6443} {
		at := func(p networkingv1.NetworkPolicyPort) bool { return p.Port != nil && p.Port.IntValue() == port }
		if !slices.ContainsFunc(rules, func(rule networkingv1.NetworkPolicyEgressRule) bool {
			return len(rule.To) == 0 && slices.ContainsFunc(rule.Ports, at)
		}) {
			t.Errorf("no rule is for port %d of the kube-apiserver wherever it is: %v", port, rules)
		}
	}
}

// Clouds serve the credentials of nodes at link-local addresses, at port 80.
func TestTheNetworkPolicyKeepsFromTheCredentialsOfNodes(t *testing.T) {
	anywhere := []int{53, 443, 6443}
	for _, rule := range egressOfThePolicy(t) {
		for _, peer := range rule.To {
			if block := peer.IPBlock; block != nil && !slices.ContainsFunc(block.Except, func(network string) bool { return network == "169.254.0.0/16" || network == "fe80::/10" }) {
				t.Errorf("the link-local addresses are in %v", block)
			}
		}
		if len(rule.To) > 0 {
			continue
		}
		if len(rule.Ports) == 0 {
			t.Error("a rule is for all ports of all addresses")
		}
		for _, port := range rule.Ports {
			if port.Port == nil || port.EndPort != nil || !slices.Contains(anywhere, port.Port.IntValue()) {
				t.Errorf("a rule is for port %v of all addresses, want those of %v alone", port.Port, anywhere)
			}
		}
	}
}

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
			cluster.Eventually(t, cluster.Limit, "its Pods", func(ctx context.Context) (bool, string) {
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
