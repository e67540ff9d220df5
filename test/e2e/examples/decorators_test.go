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

package examples

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// seen is the annotation that the hooks of config-monitor put on Pods.
const seen = "magalix.com/config-seen"

// configMonitor changes the ConfigMap that a Deployment's Pods use: all of them are replaced, and no others.
func configMonitor(t *testing.T, c *cluster.Cluster, manifest string) {
	s := stage(t, c, manifest, "config-monitor", "decoratorcontroller/config-monitor", "hooks.py")
	s.Kubectl(t, "-n", s.namespace, "apply", "-f", s.file("frontend.yaml"), "-f", s.file("monitor.yaml"))
	s.Kubectl(t, "-n", s.namespace, "scale", "deployment/frontend", "--replicas=3")
	s.Kubectl(t, "-n", s.namespace, "create", "configmap", "unrelated", "--from-literal=a=1")
	s.Kubectl(t, "-n", s.namespace, "create", "deployment", "bystander", "--image=busybox", "--replicas=2")
	noted := func(pod *corev1.Pod) bool {
		note := pod.Annotations[seen]
		return note != "" && note != `{"flaskapp-config": ""}`
	}
	frontends := s.awaitPods(t, "app=frontend", 3, noted)
	bystanders := s.awaitPods(t, "app=bystander", 2, func(*corev1.Pod) bool { return true })

	// What is changed first would show first.
	s.Kubectl(t, "-n", s.namespace, "patch", "configmap", "unrelated", "-p", `{"data":{"a":"2"}}`)
	s.Kubectl(t, "-n", s.namespace, "label", "configmap", "flaskapp-config", "its-data=unchanged")
	s.Kubectl(t, "-n", s.namespace, "annotate", "pods", "--all", "hook=called")
	s.awaitPods(t, "app=frontend", 3, func(pod *corev1.Pod) bool { return slices.Contains(frontends, pod.UID) && noted(pod) })

	s.Kubectl(t, "-n", s.namespace, "patch", "configmap", "flaskapp-config", "-p", `{"data":{"config.cfg":"MSG=\"Welcome to Operators!\""}}`)
	s.awaitPods(t, "app=frontend", 3, func(pod *corev1.Pod) bool { return !slices.Contains(frontends, pod.UID) && noted(pod) })
	s.awaitPods(t, "app=bystander", 2, func(pod *corev1.Pod) bool {
		return slices.Contains(bystanders, pod.UID) && pod.Annotations[seen] == ""
	})
}

// awaitPods waits until there are so many Pods with a label, all of them as wanted and none being deleted, and returns
// their UIDs.
func (s *scene) awaitPods(t *testing.T, selector string, n int, want func(*corev1.Pod) bool) []types.UID {
	t.Helper()
	var uids []types.UID
	cluster.Eventually(t, limit, fmt.Sprintf("%d Pods with %s", n, selector), func(ctx context.Context) (bool, string) {
		list, err := s.clients.Kube.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false, err.Error()
		}
		uids = nil
		shown := ""
		for i := range list.Items {
			pod := &list.Items[i]
			shown += fmt.Sprintf("%s %v deleting %v; ", pod.Name, pod.Annotations, pod.DeletionTimestamp != nil)
			if pod.DeletionTimestamp == nil && want(pod) {
				uids = append(uids, pod.UID)
			}
		}
		return len(uids) == n && len(list.Items) == n, shown
	})
	return uids
}

// servicePerPod scales a StatefulSet up and down; its Services follow.
func servicePerPod(t *testing.T, c *cluster.Cluster, manifest string) {
	s := stage(t, c, manifest, "service-per-pod", "decoratorcontroller/service-per-pod", "sync.py")
	s.Kubectl(t, "-n", s.namespace, "apply", "-f", s.file("nginx.yaml"))
	s.awaitServices(t, "80:8080", "nginx-0", "nginx-1", "nginx-2")
	s.Kubectl(t, "-n", s.namespace, "scale", "statefulset/nginx", "--replicas=2")
	s.awaitServices(t, "80:8080", "nginx-0", "nginx-1")
	s.Kubectl(t, "-n", s.namespace, "annotate", "--overwrite", "statefulset/nginx", "service-per-pod.example.com/ports=80:8081")
	s.awaitServices(t, "80:8081", "nginx-0", "nginx-1")
	s.Kubectl(t, "-n", s.namespace, "delete", "statefulset/nginx")
	s.awaitServices(t, "")
}

// awaitServices waits until the namespace has Services of these names and no others, all with that port.
func (s *scene) awaitServices(t *testing.T, port string, names ...string) {
	t.Helper()
	cluster.Eventually(t, limit, fmt.Sprintf("Services %v with port %s", names, port), func(ctx context.Context) (bool, string) {
		list, err := s.clients.Kube.CoreV1().Services(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		var found []string
		same := true
		for i := range list.Items {
			service := &list.Items[i]
			found = append(found, service.Name)
			same = same && len(service.Spec.Ports) == 1 && service.Spec.Selector["statefulset.kubernetes.io/pod-name"] == service.Name &&
				fmt.Sprintf("%d:%s", service.Spec.Ports[0].Port, service.Spec.Ports[0].TargetPort.String()) == port
		}
		slices.Sort(found)
		return same && slices.Equal(found, names), fmt.Sprintf("%v, as wanted: %v", found, same)
	})
}

// defaultNetworkPolicy labels a namespace, and takes the label off again.
func defaultNetworkPolicy(t *testing.T, c *cluster.Cluster, manifest string) {
	s := stage(t, c, manifest, "default-network-policy", "decoratorcontroller/default-network-policy", "hooks.py")
	await := func(what string, want bool) {
		t.Helper()
		cluster.Eventually(t, limit, what, func(ctx context.Context) (bool, string) {
			_, err := s.clients.Kube.NetworkingV1().NetworkPolicies(s.namespace).Get(ctx, "default", metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return false, err.Error()
			}
			namespace, errNamespace := s.clients.Kube.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
			if errNamespace != nil {
				return false, errNamespace.Error()
			}
			annotated := namespace.Annotations["isolation.example.com/enforced"] == "true"
			finalized := len(namespace.Finalizers) > 0
			return (err == nil) == want && annotated == want && finalized == want,
				fmt.Sprintf("policy: %v, annotated: %v, finalizer: %v", err == nil, annotated, finalized)
		})
	}
	s.Kubectl(t, "label", "namespace", s.namespace, "isolation.example.com/default=on")
	await("the policy", true)
	s.Kubectl(t, "-n", s.namespace, "delete", "networkpolicy", "default")
	await("the policy again", true)
	s.Kubectl(t, "label", "namespace", s.namespace, "isolation.example.com/default-")
	await("everything to be taken away", false)
}
