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
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// authors are users who may write controllers. All of them may do what a controller of ConfigMaps without children does; mallory
// is admin of a namespace, alice has the rights that mallory lacks, and carol has none of these but may escalate.
const authors = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: escalation-authors}
rules:
- apiGroups: [metacontroller.k8s.io]
  resources: [compositecontrollers, compositecontrollers/status, decoratorcontrollers, decoratorcontrollers/status, controllerrevisions]
  verbs: [get, create, update, patch, delete]
- {apiGroups: [""], resources: [configmaps, configmaps/status, configmaps/finalizers], verbs: ["*"]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: escalation-authors}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: escalation-authors}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: carol}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: escalation-rights}
rules:
- {apiGroups: [""], resources: [secrets, secrets/status], verbs: ["*"]}
- {apiGroups: [""], resources: [services, services/status, services/finalizers], verbs: [get, list, watch, patch, update]}
- {apiGroups: [""], resources: [serviceaccounts], verbs: [impersonate]}
- {apiGroups: [apps], resources: [deployments], verbs: [update]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, clusterroles], verbs: [bind]}
- {apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: escalation-rights}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: escalation-rights}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: escalation-escalate}
rules: [{apiGroups: [metacontroller.k8s.io], resources: ["*"], verbs: [escalate]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: escalation-escalate}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: escalation-escalate}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: carol}]
`

// An escalation turns an object into one that its author could abuse.
type escalation struct {
	// kind and resource are those of the object.
	kind, resource string
	// before is the content of the object as it is at first, without its metadata, and after what it becomes.
	before, after string
	// metadata is added to the object's name.
	metadata string
	// lacks are lines of the refusal.
	lacks []string
}

const hooks = `"hooks":{"sync":{"webhook":{"url":"http://127.0.0.1:1/"}}}`

// of returns the spec of a CompositeController of a core resource.
func of(resource, rest string) string {
	return `"spec":{"generateSelector":true,"parentResource":{"apiVersion":"v1","resource":"` + resource +
		`","labelSelector":{"matchLabels":{"test":"escalation"}}},` + rest + `}`
}

func targets(resources ...string) string {
	rules := make([]string, 0, len(resources))
	for _, resource := range resources {
		rules = append(rules, `{"apiVersion":"v1","resource":"`+resource+`","labelSelector":{"matchLabels":{"test":"escalation"}}}`)
	}
	return `"spec":{"resources":[` + strings.Join(rules, ",") + `],` + hooks + `}`
}

// escalations has a row for each sort of right and each kind of object. Package pkg/admission/escalation tests which rights a write needs.
func escalations(namespace string) map[string]escalation {
	composite := escalation{kind: "CompositeController", resource: "compositecontrollers", before: of("configmaps", hooks)}
	row := func(e escalation, after string, lacks ...string) escalation {
		e.after, e.lacks = after, lacks
		return e
	}
	services := composite
	services.before = of("services", hooks)
	decorator := escalation{kind: "DecoratorController", resource: "decoratorcontrollers", before: targets("configmaps")}
	revision := escalation{
		kind: "ControllerRevision", resource: "controllerrevisions.metacontroller.k8s.io", before: `"parentPatch":{"spec":{}}`,
		metadata: `,"namespace":"` + namespace + `","labels":{"metacontroller.k8s.io/apiGroup":"apps","metacontroller.k8s.io/resource":"deployments"}`,
	}
	return map[string]escalation{
		"Children": row(composite, of("configmaps", `"childResources":[{"apiVersion":"v1","resource":"secrets"}],`+hooks),
			"get, list, watch, create, patch, delete secrets\n"),
		"Customize": row(composite,
			of("configmaps", `"hooks":{"sync":{"webhook":{"url":"http://127.0.0.1:1/"}},"customize":{"webhook":{"url":"http://127.0.0.1:1/"}}}`),
			"get, list, watch all resources"),
		"URL": row(services, of("services", `"hooks":{"sync":{"webhook":{"url":"http://127.0.0.1:2/"}}}`),
			"get, list, watch services\n", "patch services/status\n"),
		"Targets": row(decorator, targets("configmaps", "secrets"),
			"get, list, watch, patch secrets\n", "patch secrets/status\n"),
		"RoleBindings": row(composite,
			of("configmaps", `"childResources":[{"apiVersion":"rbac.authorization.k8s.io/v1","resource":"rolebindings"}],`+hooks),
			"bind roles.rbac.authorization.k8s.io\n", "bind clusterroles.rbac.authorization.k8s.io\n"),
		"ServiceAccount": row(composite,
			of("configmaps", `"serviceAccountRef":{"namespace":"kube-system","name":"generic-garbage-collector"},`+hooks),
			"impersonate serviceaccounts kube-system/generic-garbage-collector\n"),
		"ControllerRevision": row(revision, `"parentPatch":{"spec":{}},"children":[{"apiGroup":"","kind":"Pod","names":["a"]}]`,
			"update deployments.apps\n"),
	}
}

// manifest returns the object with a content.
func (e escalation) manifest(name, content string) string {
	return fmt.Sprintf(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":%q,"metadata":{"name":%q%s},%s}`, e.kind, name, e.metadata, content)
}

// A way is a way of writing an object with kubectl.
type way struct {
	// creates says that the object is not there before.
	creates bool
	args    []string
}

func ways() map[string]way {
	return map[string]way{
		"create":         {true, []string{"create", "-f", "-"}},
		"create dry run": {true, []string{"create", "--dry-run=server", "-f", "-"}},
		"apply new":      {true, []string{"apply", "--server-side", "-f", "-"}},
		"apply":          {false, []string{"apply", "--server-side", "--force-conflicts", "-f", "-"}},
		"apply dry run":  {false, []string{"apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"}},
		"patch":          {false, []string{"patch", "--type=merge"}},
		"patch dry run":  {false, []string{"patch", "--type=merge", "--dry-run=server"}},
		"update":         {false, []string{"replace", "-f", "-"}},
	}
}

// administrator is a user who may do everything.
const administrator = "root"

// write writes the object as a user.
func (e escalation) write(ctx context.Context, c *cluster.Cluster, w way, namespace, name, user string) (string, error) {
	args := append([]string{"--as=" + user, "-n", namespace}, w.args...)
	if user == administrator {
		args = append(args, "--as-group=system:masters")
	}
	if w.args[0] == "patch" {
		return c.TryKubectl(ctx, "", append(args, e.resource, name, "-p", "{"+e.after+"}")...)
	}
	return c.TryKubectl(ctx, e.manifest(name, e.after), args...)
}

// send is write without kubectl, as the user of the client: it sends the same request.
func (e escalation) send(ctx context.Context, objects dynamic.ResourceInterface, w way, name string) error {
	var o unstructured.Unstructured
	if err := o.UnmarshalJSON([]byte(e.manifest(name, e.after))); err != nil {
		return err
	}
	var dryRun []string
	if slices.Contains(w.args, "--dry-run=server") {
		dryRun = []string{metav1.DryRunAll}
	}
	var err error
	switch w.args[0] {
	case "create":
		_, err = objects.Create(ctx, &o, metav1.CreateOptions{DryRun: dryRun})
	case "apply":
		force := slices.Contains(w.args, "--force-conflicts")
		_, err = objects.Apply(ctx, name, &o, metav1.ApplyOptions{FieldManager: "kubectl", Force: force, DryRun: dryRun})
	case "patch":
		_, err = objects.Patch(ctx, name, types.MergePatchType, []byte("{"+e.after+"}"), metav1.PatchOptions{DryRun: dryRun})
	case "replace":
		var stored *unstructured.Unstructured
		if stored, err = objects.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		o.SetResourceVersion(stored.GetResourceVersion())
		_, err = objects.Update(ctx, &o, metav1.UpdateOptions{DryRun: dryRun})
	default:
		err = fmt.Errorf("no request is known for kubectl %v", w.args)
	}
	return err
}

// TestNobodyGivesControllersMoreThanHeHas lets authors write what they may not do themselves, in every way that there is: one row with
// kubectl, and the others with the requests that it sends.
func TestNobodyGivesControllersMoreThanHeHas(t *testing.T) {
	c := cluster.Shared(t)
	// Controllers are deleted while they list. client-go logs that the response ends too soon.
	server.Start(t, c, server.Options{Tolerate: []string{"Unexpected error when reading response body"}})
	namespace := c.Namespace(t)
	c.KubectlInput(t, authors, "apply", "-f", "-")
	t.Cleanup(func() { afterwards(t, c, authors, "delete", "-f", "-") })
	c.Kubectl(t, "create", "rolebinding", "mallory", "-n", namespace, "--clusterrole=admin", "--user=mallory")
	awaitRights(t, c)

	clients := cluster.NewClients(t, c.Config(t))
	users := []string{"mallory", "alice", "carol"}
	clientOf := map[string]*cluster.Clients{}
	for _, user := range users {
		config := c.Config(t)
		config.Impersonate.UserName = user
		clientOf[user] = cluster.NewClients(t, config)
	}
	for row, e := range escalations(namespace) {
		objects := e.objects(clients, namespace)
		for verb, w := range ways() {
			t.Run(row+"/"+verb, func(t *testing.T) {
				t.Parallel()
				// Object names have no capitals and no blanks.
				name := strings.ToLower(row + "-" + strings.ReplaceAll(verb, " ", "-"))
				t.Cleanup(func() {
					if err := objects.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
						t.Error(err)
					}
				})
				for _, user := range users {
					remove(t, objects, name)
					if !w.creates {
						create(t, objects, e.manifest(name, e.before))
					}
					write := func() (string, error) {
						if row == "Children" {
							return e.write(t.Context(), c, w, namespace, name, user)
						}
						err := e.send(t.Context(), e.objects(clientOf[user], namespace), w, name)
						return fmt.Sprint(err), err
					}
					output, err := write()
					// The server writes the status of a new controller meanwhile.
					for tries := 0; tries < 5 && err != nil && strings.Contains(output, "the object has been modified"); tries++ {
						output, err = write()
					}
					if user == "mallory" {
						e.isRefused(t, output, err)
					} else if err != nil {
						t.Errorf("%s may do all of it, and is refused:\n%s", user, output)
					}
				}
			})
		}
	}
}

// isRefused checks what mallory reads.
func (e escalation) isRefused(t *testing.T, output string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(output, "forbidden") || !strings.Contains(output, `user "mallory" (groups ["system:authenticated"]) lacks`) {
		t.Errorf("mallory is not refused: %v\n%s", err, output)
	}
	for _, line := range e.lacks {
		if !strings.Contains(output, "\n- "+line) {
			t.Errorf("the refusal does not say %q:\n%s", line, output)
		}
	}
}

// objects reaches the objects of the escalation's resource as an administrator.
func (e escalation) objects(clients *cluster.Clients, namespace string) dynamic.ResourceInterface {
	resource, _, _ := strings.Cut(e.resource, ".")
	objects := clients.Dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(resource))
	if e.metadata == "" {
		return objects
	}
	return objects.Namespace(namespace)
}

func create(t *testing.T, objects dynamic.ResourceInterface, manifest string) {
	t.Helper()
	var o unstructured.Unstructured
	if err := o.UnmarshalJSON([]byte(manifest)); err != nil {
		t.Fatal(err)
	}
	if _, err := objects.Create(t.Context(), &o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// remove deletes an object if it is there, and waits until it is gone.
func remove(t *testing.T, objects dynamic.ResourceInterface, name string) {
	t.Helper()
	cluster.Eventually(t, limit, name+" to be gone", func(ctx context.Context) (bool, string) {
		err := objects.Delete(ctx, name, metav1.DeleteOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// awaitRights waits until the cluster and the server know the authors' rights.
func awaitRights(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	base := escalations("default")["URL"]
	for _, user := range []string{"mallory", "alice", "carol"} {
		cluster.Eventually(t, limit, user+" to have rights", func(ctx context.Context) (bool, string) {
			output, err := base.write(ctx, c, way{true, []string{"create", "--dry-run=server", "-f", "-"}}, "default", "rights", user)
			return err == nil || user == "mallory" && strings.Contains(output, "lacks"), output
		})
	}
}

// TestHarmlessWritesNeedNoRights shows what somebody may do who may write controllers and lacks the rights of this one.
func TestHarmlessWritesNeedNoRights(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	c.KubectlInput(t, authors, "apply", "-f", "-")
	t.Cleanup(func() { afterwards(t, c, authors, "delete", "-f", "-") })
	awaitRights(t, c)
	e := escalations("default")["URL"]
	c.KubectlInput(t, e.manifest("harmless", e.before), "create", "-f", "-")
	t.Cleanup(func() { afterwards(t, c, "", "delete", e.resource, "harmless") })
	as := func(args ...string) string {
		t.Helper()
		return c.Kubectl(t, append([]string{"--as=mallory"}, args...)...)
	}
	as("label", e.resource, "harmless", "a=b")
	as("patch", e.resource, "harmless", "--type=merge", "-p", `{"spec":{"workers":3,"resyncPeriodSeconds":60}}`)
	before := c.Kubectl(t, "get", e.resource, "harmless", "-o", "jsonpath={.spec}")
	// The status is written by whoever has the right to; a spec in it is not.
	as("patch", e.resource, "harmless", "--subresource=status", "--type=merge", "-p", `{`+e.after+`}`)
	if after := c.Kubectl(t, "get", e.resource, "harmless", "-o", "jsonpath={.spec}"); after != before {
		t.Errorf("a write of the status changed the spec from %s to %s", before, after)
	}
	as("delete", e.resource, "harmless")
	c.KubectlInput(t, e.manifest("harmless", e.before), "create", "-f", "-")
}

// TestNobodyChangesThePatchOfARevision shows that an administrator may not either.
func TestNobodyChangesThePatchOfARevision(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	namespace := c.Namespace(t)
	e := escalations(namespace)["ControllerRevision"]
	c.KubectlInput(t, e.manifest("patched", e.before), "create", "-f", "-")
	for _, w := range []way{
		{args: []string{"patch", "--type=merge"}}, {args: []string{"apply", "--server-side", "--force-conflicts", "-f", "-"}}, {args: []string{"replace", "-f", "-"}},
	} {
		forged := e
		forged.after = `"parentPatch":{"spec":{"a":1}}`
		output, err := forged.write(t.Context(), c, w, namespace, "patched", administrator)
		if err == nil || !strings.Contains(output, "parentPatch: Forbidden: may not change; only this server writes it") {
			t.Errorf("kubectl %v: %v\n%s", w.args, err, output)
		}
	}
}

// TestTheCheckCanBeSwitchedOff is for clusters in which the right to write controllers is given as that of the server.
func TestTheCheckCanBeSwitchedOff(t *testing.T) {
	c := cluster.Shared(t)
	s := server.Start(t, c, server.Options{Args: []string{"--escalation-check=false"}})
	c.KubectlInput(t, authors, "apply", "-f", "-")
	t.Cleanup(func() { afterwards(t, c, authors, "delete", "-f", "-") })
	e := escalations("default")["Children"]
	cluster.Eventually(t, limit, "mallory to write what she likes", func(ctx context.Context) (bool, string) {
		output, err := e.write(ctx, c, way{true, []string{"create", "--dry-run=server", "-f", "-"}}, "default", "unchecked", "mallory")
		return err == nil, output
	})
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
