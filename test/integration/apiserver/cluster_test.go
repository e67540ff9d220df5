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

package apiserver

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const limit = cluster.Limit

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// controller is a CompositeController for kubectl.
func controller(name string) string {
	return fmt.Sprintf(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"%s"},
		"spec":{"parentResource":{"apiVersion":"v1","resource":"configmaps","labelSelector":{"matchLabels":{"test":"%s"}}},
			"hooks":{"sync":{"webhook":{"url":"http://127.0.0.1:1/"}}}}}`, name, name)
}

// afterwards cleans up when the test's context has ended.
func afterwards(t *testing.T, c *cluster.Cluster, input string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	if output, err := c.TryKubectl(ctx, input, args...); err != nil {
		t.Errorf("kubectl %v: %v\n%s", args, err, output)
	}
}

// TestTheClusterHasItsSay has one server for what the cluster does for it and with it.
func TestTheClusterHasItsSay(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	for name, run := range map[string]func(*testing.T, *cluster.Cluster){
		"users have the rights that the cluster gives them":         rightsOfUsers,
		"admission policies hold":                                   admissionPolicies,
		"the garbage collector deletes revisions with their parent": revisionsAreCollected,
		"there are no revisions in namespaces that are not there":   noRevisionsNowhere,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}

func rightsOfUsers(t *testing.T, c *cluster.Cluster) {
	output, err := c.TryKubectl(t.Context(), "", "get", "compositecontrollers", "--as=jane")
	if err == nil || !strings.Contains(output, `User "jane" cannot list resource "compositecontrollers" in API group "metacontroller.k8s.io"`) {
		t.Errorf("jane has no rights: %v\n%s", err, output)
	}
	c.Kubectl(t, "create", "clusterrolebinding", "jane-views", "--clusterrole=view", "--user=jane")
	t.Cleanup(func() { afterwards(t, c, "", "delete", "clusterrolebinding", "jane-views") })
	cluster.Eventually(t, limit, "jane to have the rights of view", func(ctx context.Context) (bool, string) {
		output, err := c.TryKubectl(ctx, "", "get", "compositecontrollers", "--as=jane")
		return err == nil, output
	})
	output, err = c.TryKubectl(t.Context(), controller("janes"), "create", "--as=jane", "-f", "-")
	if err == nil || !strings.Contains(output, "cannot create") {
		t.Errorf("jane may only view: %v\n%s", err, output)
	}
}

// The expression needs a CEL library that came with Kubernetes 1.30: a server that took its own version for that of
// Kubernetes would refuse the policy.
const policies = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-forbidden-controllers}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [metacontroller.k8s.io], apiVersions: ["*"], operations: [CREATE], resources: [compositecontrollers]}
  validations:
  - expression: "!object.metadata.name.startsWith('forbidden') && ip('127.0.0.1').isLoopback()"
    message: this name is forbidden here
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-forbidden-controllers}
spec: {policyName: no-forbidden-controllers, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label-controllers}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [metacontroller.k8s.io], apiVersions: ["*"], operations: [CREATE], resources: [compositecontrollers]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: "Object{metadata: Object.metadata{labels: {'policy': 'seen'}}}"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: label-controllers}
spec: {policyName: label-controllers}
`

func admissionPolicies(t *testing.T, c *cluster.Cluster) {
	client := cluster.NewClients(t, c.Config(t)).Dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource("compositecontrollers"))
	c.KubectlInput(t, policies, "apply", "-f", "-")
	t.Cleanup(func() { afterwards(t, c, policies, "delete", "-f", "-") })
	create := func(ctx context.Context, name string) (*unstructured.Unstructured, error) {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(controller(name))); err != nil {
			return nil, err
		}
		return client.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	}
	cluster.Eventually(t, limit, "the validating policy to hold", func(ctx context.Context) (bool, string) {
		_, err := create(ctx, "forbidden")
		return err != nil && strings.Contains(err.Error(), "this name is forbidden here"), fmt.Sprint(err)
	})
	// The kube-apiserver publishes the schema of a new group, without which nothing can be mutated, after a minute or more.
	cluster.Eventually(t, 4*limit, "the mutating policy to hold", func(ctx context.Context) (bool, string) {
		created, err := create(ctx, "labeled")
		if err != nil {
			return false, err.Error()
		}
		return created.GetLabels()["policy"] == "seen", fmt.Sprint(created.GetLabels())
	})
}

func revisionsAreCollected(t *testing.T, c *cluster.Cluster) {
	namespace := c.Namespace(t)
	c.Kubectl(t, "-n", namespace, "create", "configmap", "parent")
	uid := c.Kubectl(t, "-n", namespace, "get", "configmap", "parent", "-o", "jsonpath={.metadata.uid}")
	c.KubectlInput(t, fmt.Sprintf(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"one",
		"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"parent","uid":"%s","controller":true}]},"parentPatch":{}}`, uid),
		"-n", namespace, "create", "-f", "-")
	c.Kubectl(t, "-n", namespace, "delete", "configmap", "parent")
	// The garbage collector looks for new kinds twice a minute, and lists them then.
	cluster.Eventually(t, 3*limit, "the revision to be gone", func(ctx context.Context) (bool, string) {
		name, err := c.Field(ctx, namespace, "controllerrevisions.metacontroller.k8s.io/one", "{.metadata.name}")
		return apierrors.IsNotFound(err), fmt.Sprintf("%q %v", name, err)
	})
}

func noRevisionsNowhere(t *testing.T, c *cluster.Cluster) {
	output, err := c.TryKubectl(t.Context(), `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision",
		"metadata":{"name":"one"},"parentPatch":{}}`, "-n", "nowhere", "create", "-f", "-")
	if err == nil || !strings.Contains(output, `namespaces "nowhere" not found`) {
		t.Errorf("got %v\n%s", err, output)
	}
}
