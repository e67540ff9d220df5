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

package rescue

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

// What is to be simulated of the shape: a StatefulSet with one Pod, and a node on which no kubelet is.
const lostNode = `
{apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {node.example.com/lost: ""}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: metacontroller}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: metacontroller-apiserver, namespace: metacontroller}
spec:
  replicas: 1
  serviceName: metacontroller-apiserver
  selector: {matchLabels: {app.kubernetes.io/name: metacontroller-apiserver}}
  template:
    metadata: {labels: {app.kubernetes.io/name: metacontroller-apiserver}}
    spec:
      containers: [{name: apiserver, image: metacontroller-apiserver}]
      terminationGracePeriodSeconds: 1
`

// nodeStatus is what a kubelet, or the node controller, says of the node.
func nodeStatus(ready string) string {
	return `{"status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
		"conditions": [{"type": "Ready", "status": "` + ready + `", "reason": "Test", "lastHeartbeatTime": "2026-01-02T03:04:05Z",
		"lastTransitionTime": "2026-01-02T03:04:05Z"}]}}`
}

// TestANodeIsLost plays the page. The node exists for the API server alone; the StatefulSet, the garbage collection of Pods and the
// scheduler are real.
func TestANodeIsLost(t *testing.T) {
	figures := report.For(t, report.NodeLost)
	c := cluster.Shared(t)
	c.Kubectl(t, "cordon", "kwok-node-0")
	c.KubectlInput(t, lostNode, "apply", "-f", "-")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		_, _ = c.TryKubectl(ctx, "", "uncordon", "kwok-node-0")
		_, _ = c.TryKubectl(ctx, "", "delete", "statefulset", "metacontroller-apiserver", "--namespace", "metacontroller")
		_, _ = c.TryKubectl(ctx, "", "delete", "node", "node-1")
	})
	c.Kubectl(t, "patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", nodeStatus("True"))
	field := func(path string) string {
		output, err := c.TryKubectl(t.Context(), "", "get", "pod", "metacontroller-apiserver-0", "--namespace", "metacontroller", "-o", "jsonpath={"+path+"}")
		if err != nil {
			return err.Error()
		}
		return output
	}
	cluster.Eventually(t, patience, "the Pod to be on the node", func(context.Context) (bool, string) {
		got := field(".spec.nodeName")
		return got == "node-1", got
	})
	lost := field(".metadata.uid")

	// The node stops answering, and the Pod is evicted: its deletion waits for a kubelet.
	c.Kubectl(t, "patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", nodeStatus("Unknown"))
	c.Kubectl(t, "delete", "pod", "metacontroller-apiserver-0", "--namespace", "metacontroller", "--wait=false")
	c.Kubectl(t, "uncordon", "kwok-node-0")
	cluster.Eventually(t, patience, "the Pod to be terminating", func(context.Context) (bool, string) {
		got := field(".metadata.deletionTimestamp")
		return strings.HasPrefix(got, "20"), got
	})

	began := time.Now()
	s := terminal.New(t, c)
	s.PlaySection(t, "docs/operations/availability.md", "## When the node is lost", 3, *update)
	if now := field(".metadata.uid"); now == lost || now == "" {
		t.Errorf("the Pod is still %s", now)
	}
	if on := field(".spec.nodeName"); on != "kwok-node-0" {
		t.Errorf("the Pod runs on %s", on)
	}
	figures.Sayf("the Pod runs on another node %s after the node was given up", time.Since(began).Round(time.Second))
}
