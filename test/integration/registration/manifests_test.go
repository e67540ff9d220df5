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

package registration

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

func TestUsersGetTheRightsOfTheirRoles(t *testing.T) {
	plane := cluster.Shared(t)
	o := newStandIn(t).options(t)
	if err := registration.Register(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	namespace := plane.Namespace(t)
	for _, role := range []string{"view", "edit", "admin"} {
		plane.Bind(t, role, role, namespace, role)
	}
	for _, test := range []struct {
		user, verb, resource string
		want                 bool
	}{
		{"view", "list", "controllerrevisions", true},
		{"view", "watch", "controllerrevisions", true},
		{"view", "create", "controllerrevisions", false},
		{"edit", "list", "controllerrevisions", true},
		{"edit", "watch", "controllerrevisions", true},
		{"edit", "patch", "controllerrevisions", false},
		{"edit", "delete", "controllerrevisions", false},
		{"edit", "create", "compositecontrollers", false},
		{"admin", "list", "controllerrevisions", true},
		{"admin", "create", "controllerrevisions", false},
		{"admin", "update", "controllerrevisions", false},
		{"admin", "create", "decoratorcontrollers", false},
		{"stranger", "get", "controllerrevisions", false},
	} {
		plane.AwaitAccess(t, test.user, authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: test.verb, Group: "metacontroller.k8s.io", Resource: test.resource,
		}, test.want)
	}
}

// defineCertificates makes the kinds of cert-manager that an overlay has objects of, without schemas.
func defineCertificates(t *testing.T, plane *cluster.Cluster) {
	t.Helper()
	plane.DefineManifests(t, definition("Issuer", "issuers", "cert-manager.io", "v1")+"---\n"+definition("Certificate", "certificates", "cert-manager.io", "v1"))
}

// applied applies a folder of artifacts, which goes with the test.
func applied(t *testing.T, plane *cluster.Cluster, folder string) {
	t.Helper()
	folder = filepath.Join(cluster.Root(), "artifacts", folder)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Limit)
		defer cancel()
		// A cluster that counts on a server which is not there cannot delete namespaces.
		for _, what := range [][]string{{"apiservice", apiService}, {"-k", folder}} {
			if output, err := plane.TryKubectl(ctx, "", append([]string{"delete", "--ignore-not-found"}, what...)...); err != nil {
				t.Errorf("deleting %v: %v\n%s", what, err, output)
			}
		}
	})
	plane.Kubectl(t, "apply", "--server-side", "-k", folder)
}

// TestOverlaysAreAccepted applies them as the documentation says, and looks whether the cluster makes their Pods.
func TestOverlaysAreAccepted(t *testing.T) {
	plane := cluster.Shared(t)
	defineCertificates(t, plane)
	for overlay, want := range map[string]struct {
		pods      int
		container string
	}{
		"single-node":     {pods: 1, container: "apiserver"},
		"production":      {pods: 2, container: "apiserver"},
		"least-privilege": {pods: 1, container: "apiserver"},
		"definitions":     {pods: 1, container: "apiserver"},
	} {
		t.Run(overlay, func(t *testing.T) {
			folder := filepath.Join(cluster.Root(), "artifacts", "overlays", overlay)
			plane.Kubectl(t, "apply", "--server-side", "-k", folder)
			if output := plane.Kubectl(t, "apply", "--server-side", "--dry-run=server", "-k", folder); strings.Contains(output, "Warning") {
				t.Errorf("the cluster warns:\n%s", output)
			}
			cluster.Eventually(t, cluster.Limit, "Pods are made", func(ctx context.Context) (bool, string) {
				names, err := plane.Field(ctx, "metacontroller", "pods", "{.items[*].metadata.name}")
				return err == nil && strings.Count(" "+names, " metacontroller-apiserver-") == want.pods, fmt.Sprintf("%s %v", names, err)
			})
			// The namespace is not the server's alone, and enforces no pod security level; the Pods meet the strictest one.
			if label := plane.Kubectl(t, "get", "namespace", "metacontroller", "-o", "jsonpath={.metadata.labels}"); strings.Contains(label, "pod-security") {
				t.Errorf("the namespace has the labels %s", label)
			}
			output := plane.Kubectl(t, "label", "--dry-run=server", "namespace", "metacontroller", "pod-security.kubernetes.io/enforce=restricted")
			if strings.Contains(output, "violate") {
				t.Errorf("the Pods do not meet the level restricted:\n%s", output)
			}
			names := plane.Kubectl(t, "get", "pods", "-n", "metacontroller",
				"-o", "jsonpath={.items[0].spec.initContainers[*].name} {.items[0].spec.containers[*].name}")
			if strings.TrimSpace(names) != want.container {
				t.Errorf("Pods have containers %q, want %q", names, want.container)
			}
			// The API server waits for up to 75 seconds with the status of a FlowSchema that it has written six times within a minute, as one
			// that comes and goes with each overlay may have been.
			cluster.Eventually(t, cluster.Limit, "the FlowSchemas to have their levels", func(ctx context.Context) (bool, string) {
				output, err := plane.TryKubectl(ctx, "", "get", "flowschemas", "-l", "app.kubernetes.io/name=metacontroller-apiserver",
					"-o", `jsonpath={.items[*].status.conditions[?(@.type=="Dangling")].status}`)
				return err == nil && output == "False False False", output
			})
			// The documentation has the server scaled to 0 before something is applied: a scale to 0, other than one to more, owns nothing.
			plane.Kubectl(t, "scale", "deployment,statefulset", "-n", "metacontroller", "-l", "app.kubernetes.io/name=metacontroller-apiserver", "--replicas=0")
			plane.Kubectl(t, "apply", "--server-side", "-k", folder)
			replicas := plane.Kubectl(t, "get", "deployment,statefulset", "-n", "metacontroller", "-o", "jsonpath={.items[*].spec.replicas}")
			if replicas != strconv.Itoa(want.pods) {
				t.Errorf("after a scale to 0, an apply makes %s replicas, want %d", replicas, want.pods)
			}
			// What is in the namespace may be gone with it already.
			plane.Kubectl(t, "delete", "--wait=false", "--ignore-not-found", "-k", folder)
			// The controller of namespaces looks again half of the Pods' grace period later, which is up to 100 seconds.
			plane.Kubectl(t, "wait", "--for=delete", "--timeout=3m", "namespace/metacontroller")
		})
	}
}

// TestOneShapeOverTheOtherSplitsNoRequests applies production over single-node, as somebody does who moves to an etcd of his own.
func TestOneShapeOverTheOtherSplitsNoRequests(t *testing.T) {
	plane := cluster.Shared(t)
	defineCertificates(t, plane)
	selected := func(shape string) {
		t.Helper()
		applied(t, plane, filepath.Join("overlays", shape))
		cluster.Eventually(t, cluster.Limit, "the Service to select the Pods of "+shape+" alone", func(ctx context.Context) (bool, string) {
			selector, err := plane.TryKubectl(ctx, "", "get", "service", "-n", "metacontroller", "metacontroller-apiserver", "-o",
				`go-template={{range $k, $v := .spec.selector}}{{$k}}={{$v}},{{end}}`)
			if err != nil {
				return false, selector
			}
			pods, err := plane.TryKubectl(ctx, "", "get", "pods", "-n", "metacontroller", "-l", strings.TrimSuffix(selector, ","), "-o",
				"jsonpath={.items[*].metadata.ownerReferences[0].kind}")
			return err == nil && pods == map[string]string{"single-node": "StatefulSet", "production": "ReplicaSet ReplicaSet"}[shape], selector + " " + pods
		})
	}
	selected("single-node")
	selected("production")
	if pods := plane.Kubectl(t, "get", "pods", "-n", "metacontroller", "-o", "name"); strings.Count(pods, "pod/") != 3 {
		t.Errorf("the Pods are %s, want those of both shapes, so that this shows something", pods)
	}
	selected("single-node")
}

// TestServiceAccountHasTheRightsOfTheServer asks the cluster, as the server does at its start.
func TestServiceAccountHasTheRightsOfTheServer(t *testing.T) {
	plane := cluster.Shared(t)
	applied(t, plane, "base")
	// Without the controllers' rights, which are everything, the account has none of these once the cluster has seen the deletion.
	const account = "system:serviceaccount:metacontroller:metacontroller-apiserver"
	plane.AwaitAccess(t, account, authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: "default"}, true)
	plane.Kubectl(t, "delete", "clusterrolebinding", "metacontroller-controllers")
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "secrets", Namespace: "default"},
		{Verb: "create", Resource: "pods", Namespace: "default"},
		{Verb: "patch", Group: "apiregistration.k8s.io", Resource: "apiservices", Name: "v1."},
		// The server applies the registration, which is patch and create.
		{Verb: "update", Group: "apiregistration.k8s.io", Resource: "apiservices", Name: apiService},
	} {
		plane.AwaitAccess(t, account, right, false)
	}
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "list", Resource: "namespaces"},
		{Verb: "watch", Resource: "namespaces"},
		{Verb: "watch", Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
		{Verb: "watch", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		{Verb: "watch", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
		{Verb: "watch", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
		{Verb: "watch", Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"},
		{Verb: "watch", Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"},
		{Verb: "watch", Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"},
		{Verb: "watch", Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"},
		{Verb: "patch", Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas", Subresource: "status"},
		{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
		{Verb: "get", Resource: "configmaps", Name: "extension-apiserver-authentication", Namespace: "kube-system"},
		{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "metacontroller"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "metacontroller"},
		{Verb: "watch", Group: "coordination.k8s.io", Resource: "leases", Namespace: "metacontroller"},
		{Verb: "patch", Group: "apiregistration.k8s.io", Resource: "apiservices", Name: apiService},
		{Verb: "create", Group: "apiregistration.k8s.io", Resource: "apiservices", Name: apiService},
		{Verb: "get", Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "metacontroller-apiserver"},
	} {
		plane.AwaitAccess(t, account, right, true)
	}
}

// storage is a volume for the claim of the server, of a class that allows it to be enlarged.
const storage = `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: expandable}, provisioner: example.com/none, allowVolumeExpansion: true}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: store}
spec:
  capacity: {storage: 6Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: expandable
  hostPath: {path: /nowhere}
  claimRef: {namespace: metacontroller, name: data-metacontroller-apiserver-0}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-metacontroller-apiserver-0, namespace: metacontroller}
spec: {accessModes: [ReadWriteOnce], storageClassName: expandable, volumeName: store, resources: {requests: {storage: 6Gi}}}
`

// TestTheVolumeIsEnlarged runs the commands of docs/operations/storage.md: the Pod stays, and the next apply takes it up.
func TestTheVolumeIsEnlarged(t *testing.T) {
	plane := cluster.Shared(t)
	t.Cleanup(func() {
		_, _ = plane.TryKubectl(context.WithoutCancel(t.Context()), "", "delete", "--wait=false", "pv/store", "storageclass/expandable")
	})
	plane.Kubectl(t, "create", "namespace", "metacontroller")
	plane.KubectlInput(t, storage, "apply", "-f", "-")
	applied(t, plane, filepath.Join("overlays", "single-node"))
	pod := func() string {
		var uid string
		cluster.Eventually(t, cluster.Limit, "the Pod to be there", func(ctx context.Context) (bool, string) {
			var err error
			uid, err = plane.TryKubectl(ctx, "", "get", "pod", "metacontroller-apiserver-0", "-n", "metacontroller", "-o", "jsonpath={.metadata.uid}")
			return err == nil, uid
		})
		return uid
	}
	before := pod()
	plane.Kubectl(t, "wait", "--for=jsonpath={.status.phase}=Bound", "--timeout=1m", "pvc/data-metacontroller-apiserver-0", "-n", "metacontroller")
	plane.Kubectl(t, "patch", "persistentvolumeclaim", "data-metacontroller-apiserver-0", "--namespace", "metacontroller", "--type", "merge",
		"--patch", `{"spec": {"resources": {"requests": {"storage": "20Gi"}}}}`)
	plane.Kubectl(t, "delete", "statefulset", "metacontroller-apiserver", "--namespace", "metacontroller", "--cascade=orphan")
	larger := strings.Replace(plane.Kubectl(t, "kustomize", filepath.Join(cluster.Root(), "artifacts", "overlays", "single-node")), "storage: 6Gi", "storage: 20Gi", 1)
	plane.KubectlInput(t, larger, "apply", "--server-side", "-f", "-")
	plane.Kubectl(t, "wait", "--for=jsonpath={.status.replicas}=1", "--timeout=1m", "statefulset/metacontroller-apiserver", "-n", "metacontroller")
	if now := pod(); now != before {
		t.Errorf("the Pod %s is %s now", before, now)
	}
}
