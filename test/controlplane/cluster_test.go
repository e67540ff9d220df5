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

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/build"
)

// TestCluster is what users of the control plane rely on.
func TestCluster(t *testing.T) {
	c := startControlPlane(t, "--with-stdin")
	for name, test := range map[string]func(*testing.T, *controlPlane){
		"kubectl prints the versions":                     versions,
		"a Pod that is to stay runs and is ready":         podStays,
		"Pods that are to end succeed":                    podsEnd,
		"a Job completes":                                 jobCompletes,
		"a Deployment and a StatefulSet become available": workloadsBecomeAvailable,
		"a deleted Pod is gone although it has grace":     podIsDeleted,
		"a deleted owner takes its children along":        ownerIsDeleted,
		"a deleted namespace is gone with its content":    namespaceIsDeleted,
		"access is by RBAC":                               accessIsByRBAC,
		"aggregated API servers learn whom to believe":    aggregationIsOn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

// namespace makes a namespace that goes with the control plane.
func (c *controlPlane) namespace(t *testing.T, name string) string {
	t.Helper()
	c.kubectl(t, "create", "namespace", name)
	c.eventuallyPrints(t, "default", "get", "-n", name, "serviceaccount", "default", "--ignore-not-found", "-o", "jsonpath={.metadata.name}")
	return name
}

func versions(t *testing.T, c *controlPlane) {
	type version struct {
		GitVersion string `json:"gitVersion"`
		Major      string `json:"major"`
		Minor      string `json:"minor"`
	}
	var found struct {
		ClientVersion version `json:"clientVersion"`
		ServerVersion version `json:"serverVersion"`
	}
	if err := json.Unmarshal([]byte(c.kubectl(t, "version", "-o", "json")), &found); err != nil {
		t.Fatal(err)
	}
	if found.ClientVersion != found.ServerVersion {
		t.Errorf("client and server differ: %+v", found)
	}
	if v := found.ServerVersion; v.GitVersion != build.KubernetesVersion || v.Major != "1" || v.Minor != "36" {
		t.Errorf("want %s, got %+v", build.KubernetesVersion, v)
	}
}

func podStays(t *testing.T, c *controlPlane) {
	namespace := c.namespace(t, "pod-stays")
	c.kubectl(t, "-n", namespace, "run", "stays", "--image=example.com/none", "--restart=Always")
	c.kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "--timeout=90s", "pod/stays")
	c.eventuallyPrints(t, "Running kwok-node-0 true 0", "-n", namespace, "get", "pod", "stays", "-o",
		"jsonpath={.status.phase} {.spec.nodeName} {.status.containerStatuses[0].ready} {.status.containerStatuses[0].restartCount}")
	// One that ends later shows that this one had the time to.
	c.kubectl(t, "-n", namespace, "run", "ends", "--image=example.com/none", "--restart=Never")
	c.kubectl(t, "-n", namespace, "wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s", "pod/ends")
	if phase := c.kubectl(t, "-n", namespace, "get", "pod", "stays", "-o", "jsonpath={.status.phase}"); phase != "Running" {
		t.Errorf("the Pod that is to stay is %s", phase)
	}
}

func podsEnd(t *testing.T, c *controlPlane) {
	namespace := c.namespace(t, "pods-end")
	for _, policy := range []string{"OnFailure", "Never"} {
		name := "ends-" + strings.ToLower(policy)
		c.kubectl(t, "-n", namespace, "run", name, "--image=example.com/none", "--restart="+policy)
		c.kubectl(t, "-n", namespace, "wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s", "pod/"+name)
		want := "Completed 0"
		if got := c.kubectl(t, "-n", namespace, "get", "pod", name, "-o",
			"jsonpath={.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode}"); got != want {
			t.Errorf("%s: the container's end is %q, want %q", name, got, want)
		}
	}
}

func jobCompletes(t *testing.T, c *controlPlane) {
	namespace := c.namespace(t, "job-completes")
	c.kubectl(t, "-n", namespace, "create", "job", "job", "--image=example.com/none")
	c.kubectl(t, "-n", namespace, "wait", "--for=condition=Complete", "--timeout=90s", "job/job")
}

func workloadsBecomeAvailable(t *testing.T, c *controlPlane) {
	namespace := c.namespace(t, "workloads")
	c.kubectl(t, "-n", namespace, "create", "deployment", "deployment", "--image=example.com/none", "--replicas=3")
	c.apply(t, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set, namespace: workloads}
spec:
  replicas: 2
  serviceName: set
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec: {containers: [{name: main, image: example.com/none}]}
`)
	c.kubectl(t, "-n", namespace, "wait", "--for=condition=Available", "--timeout=90s", "deployment/deployment")
	c.kubectl(t, "-n", namespace, "rollout", "status", "--timeout=90s", "statefulset/set")
}

func podIsDeleted(t *testing.T, c *controlPlane) {
	namespace := c.namespace(t, "pod-deleted")
	c.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: pod, namespace: pod-deleted}
spec: {terminationGracePeriodSeconds: 3600, containers: [{name: main, image: example.com/none}]}
`)
	c.kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "--timeout=90s", "pod/pod")
	c.kubectl(t, "-n", namespace, "delete", "pod", "pod", "--timeout=90s")
}

func ownerIsDeleted(t *testing.T, c *controlPlane) {
	namespace := c.namespace(t, "owner-deleted")
	c.kubectl(t, "-n", namespace, "create", "deployment", "deployment", "--image=example.com/none", "--replicas=2")
	c.kubectl(t, "-n", namespace, "wait", "--for=condition=Available", "--timeout=90s", "deployment/deployment")
	c.kubectl(t, "-n", namespace, "delete", "deployment", "deployment")
	c.eventuallyPrints(t, "", "-n", namespace, "get", "replicasets,pods", "-o", "name")
}

func namespaceIsDeleted(t *testing.T, c *controlPlane) {
	namespace := c.namespace(t, "namespace-deleted")
	c.kubectl(t, "-n", namespace, "run", "pod", "--image=example.com/none")
	c.kubectl(t, "-n", namespace, "create", "configmap", "settings")
	c.kubectl(t, "delete", "namespace", namespace, "--timeout=90s")
}

func accessIsByRBAC(t *testing.T, c *controlPlane) {
	namespace := c.namespace(t, "access")
	c.kubectl(t, "-n", namespace, "create", "role", "reader", "--verb=get", "--resource=configmaps")
	c.kubectl(t, "-n", namespace, "create", "rolebinding", "reader", "--role=reader", "--serviceaccount="+namespace+":default")
	c.kubectl(t, "-n", namespace, "create", "configmap", "settings", "--from-literal=key=value")
	token := strings.TrimSpace(c.kubectl(t, "-n", namespace, "create", "token", "default"))
	// The administrator's certificate would win over the token, so this one asks with neither file nor certificate.
	ca := "--certificate-authority=" + c.Dir + "/certificates/serving-ca.crt"
	asAccount := func(args ...string) (string, error) {
		return c.tryKubectl(t.Context(), "", append([]string{"--kubeconfig=/dev/null", "--server=" + c.Server, ca, "--token=" + token, "-n", namespace}, args...)...)
	}
	if got, err := asAccount("get", "configmap", "settings", "-o", "jsonpath={.data.key}"); err != nil || got != "value" {
		t.Errorf("the service account may not do what its role allows: %q, %v", got, err)
	}
	if got, err := asAccount("get", "secrets"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("the service account may do what nobody allowed: %q, %v", got, err)
	}
}

func aggregationIsOn(t *testing.T, c *controlPlane) {
	var settings struct {
		Data map[string]string `json:"data"`
	}
	printed := c.kubectl(t, "-n", "kube-system", "get", "configmap", "extension-apiserver-authentication", "-o", "json")
	if err := json.Unmarshal([]byte(printed), &settings); err != nil {
		t.Fatal(err)
	}
	client, proxy := settings.Data["client-ca-file"], settings.Data["requestheader-client-ca-file"]
	if client == "" || proxy == "" || client == proxy {
		t.Errorf("want two authorities, one for users and one for the front proxy, got %q and %q", client, proxy)
	}
	if names := settings.Data["requestheader-allowed-names"]; names != `["front-proxy-client"]` {
		t.Errorf("the front proxy may be called %s", names)
	}
	c.kubectl(t, "get", "apiservices")
}
