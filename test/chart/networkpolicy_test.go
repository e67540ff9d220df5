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
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

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
