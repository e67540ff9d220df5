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

package tree

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse reads an object.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.UnmarshalJSON(encoded); err != nil {
		t.Fatal(err)
	}
	return o
}

// owned returns an object with an owner.
func owned(o *unstructured.Unstructured, uid, owner types.UID, controlled bool) *unstructured.Unstructured {
	o.SetUID(uid)
	o.SetOwnerReferences([]metav1.OwnerReference{{UID: owner, Controller: &controlled}})
	return o
}

// testMapper knows the kinds of the tests.
func testMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		{Group: "example.com", Version: "v1", Kind: "Website"},
		{Version: "v1", Kind: "ConfigMap"},
		{Version: "v1", Kind: "Pod"},
		v1alpha1.SchemeGroupVersion.WithKind("ControllerRevision"),
	} {
		m.Add(kind, meta.RESTScopeNamespace)
	}
	return m
}

// controllers declare ConfigMaps and a kind that is not served as children of Websites, and pods as those of ConfigMaps.
func controllers() []controllerobject.Object {
	rule := func(version, resource string) v1alpha1.ResourceRule {
		return v1alpha1.ResourceRule{APIVersion: version, Resource: resource}
	}
	composite := &v1alpha1.CompositeController{}
	composite.Spec.ParentResource.ResourceRule = rule("example.com/v1", "websites")
	for _, child := range []v1alpha1.ResourceRule{rule("v1", "configmaps"), rule("example.com/v1", "gadgets")} {
		composite.Spec.ChildResources = append(composite.Spec.ChildResources, v1alpha1.CompositeControllerChildResourceRule{ResourceRule: child})
	}
	decorator := &v1alpha1.DecoratorController{}
	decorator.Spec.Resources = []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: rule("v1", "configmaps")}}
	decorator.Spec.Attachments = []v1alpha1.DecoratorControllerAttachmentRule{
		{ResourceRule: rule("v1", "pods")}, {ResourceRule: rule("v1", "configmaps")},
	}
	return []controllerobject.Object{{Composite: composite}, {Decorator: decorator}}
}

// The objects of a cluster: a Website with a revision and three ConfigMaps, one of which has a Pod, and owns itself through another one.
func objects(t *testing.T) (parent *unstructured.Unstructured, all []runtime.Object) {
	t.Helper()
	parent = parse(t, `{apiVersion: example.com/v1, kind: Website, metadata: {name: web, namespace: shop, uid: w}, status: {conditions: [{type: Ready, status: "False", reason: NoDisk, message: it is full}]}}`)
	configMap := func(name string, uid, owner types.UID, controlled bool) *unstructured.Unstructured {
		o := parse(t, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: shop,
			managedFields: [{manager: metacontroller}, {manager: kubectl, subresource: status}, {manager: kubectl-edit}, {manager: metacontroller}]}}`, name))
		return owned(o, uid, owner, controlled)
	}
	stays := configMap("c", "c", "a", true)
	stays.SetOwnerReferences(append(stays.GetOwnerReferences(), metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "shop", UID: "ns"}))
	return parent, []runtime.Object{
		parent, configMap("a", "a", "w", true), configMap("b", "b", "w", false), stays, configMap("stranger", "s", "x", true),
		owned(parse(t, `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, status: {phase: Pending,
			containerStatuses: [{state: {waiting: {reason: ImagePullBackOff, message: no such image}}}]}}`), "p", "a", true),
		owned(parse(t, `{apiVersion: metacontroller.k8s.io/v1alpha1, kind: ControllerRevision, metadata: {name: web-1, namespace: shop},
			parentPatch: {}, children: [{apiGroup: "", kind: ConfigMap, names: [a]}]}`), "r", "w", true),
	}
}

// grown returns what is printed of the Website and the notes.
func grown(t *testing.T, depth, limit int) (string, []string) {
	t.Helper()
	parent, all := objects(t)
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Version: "v1", Resource: "configmaps"}: "ConfigMapList", {Version: "v1", Resource: "pods"}: "PodList",
		{Group: "example.com", Version: "v1", Resource: "websites"}:     "WebsiteList",
		v1alpha1.SchemeGroupVersion.WithResource("controllerrevisions"): "ControllerRevisionList",
	}, all...)
	c := &collector{client: client, mapper: testMapper(), kinds: kindsOf(controllers()), limit: limit, lists: map[string][]unstructured.Unstructured{}}
	mapping, name, err := connection.Resolve(testMapper(), "tree", []string{"Website.example.com/web"})
	if err != nil || name != "web" {
		t.Fatalf("resolved %s: %v", name, err)
	}
	root, err := c.collect(t.Context(), mapping, parent, depth)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := printTable(&b, root, true); err != nil {
		t.Fatal(err)
	}
	slices.Sort(c.notes)
	return b.String(), c.notes
}

const unserved = "The cluster does not serve gadgets.example.com."

func TestATree(t *testing.T) {
	got, notes := grown(t, 5, 100)
	want := `NAME STATE REVISION FIELD MANAGERS REASON
websites.example.com/web NotReady - - NoDisk: it is full
├─ configmaps/a - web-1 metacontroller,kubectl-edit -
│  ├─ configmaps/c (stays without its parent) - - metacontroller,kubectl-edit -
│  └─ pods/p Pending - - ImagePullBackOff: no such image
├─ configmaps/b (owned, not controlled) - - metacontroller,kubectl-edit -
└─ controllerrevisions.metacontroller.k8s.io/web-1 - - - -
`
	if diff := cmp.Diff(fields(want), fields(got)); diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, got)
	}
	if diff := cmp.Diff([]string{unserved}, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// A table fits a terminal: a revision is known by the first digits of its digest, and field managers are in a wide table.
func TestATreeFitsATerminal(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	root := &Node{
		resource: "websites.example.com", Name: "web", Ready: "Failing", Reason: "cc/website: sync hook failed: " + strings.Repeat("x", 200) + ": refused", Controlled: true,
		Children: []*Node{{
			resource: "controllerrevisions.metacontroller.k8s.io", Name: "websites.example.com-" + hash, Controlled: true, FieldManagers: []string{"metacontroller"},
			Revision: "websites.example.com-" + hash,
		}},
	}
	var b bytes.Buffer
	if err := printTable(&b, root, false); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(line); n > outputformat.Columns+30 || strings.Contains(line, hash) || strings.Contains(line, "metacontroller ") {
			t.Errorf("%d characters: %s", n, line)
		}
	}
	if !strings.Contains(b.String(), "-01234567 ") || !strings.Contains(b.String(), ": refused\n") {
		t.Errorf("printed is\n%s", b.String())
	}
}

// The object at the root is a parent, and its controllers say how it is.
func TestTheStateOfAParentIsPrinted(t *testing.T) {
	cluster := deployment()
	const group = "/apis/metacontroller.k8s.io/v1alpha1/"
	cluster[group+"compositecontrollers"] = `{"kind":"CompositeControllerList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[]}`
	cluster[group+"decoratorcontrollers"] = `{"kind":"DecoratorControllerList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[{"metadata":{"name":"guard"},` +
		`"spec":{"resources":[{"apiVersion":"apps/v1","resource":"deployments"}]}},{"metadata":{"name":"other"},"spec":{"resources":[{"apiVersion":"v1","resource":"pods"}]}}]}`
	cluster[group+"decoratorcontrollers/guard/parents"] = `{"kind":"ControllerParentList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[` +
		`{"group":"apps","resource":"deployments","namespace":"shop","name":"web","state":"Failing","lastError":"no luck"}]}`
	printed, err := connectiontest.Run(t, NewCommand, cluster, "deployment/web")
	if err != nil || !strings.Contains(printed, "deployments.apps/web        Failing") || !strings.Contains(printed, "dc/guard: no luck") {
		t.Errorf("printed %q, error %v", printed, err)
	}
}

// fields are the words of a text: the widths of columns do not matter.
func fields(text string) []string { return strings.Fields(text) }

func TestBoundsOfATree(t *testing.T) {
	got, notes := grown(t, 1, 100)
	if strings.Contains(got, "pods/p") || !slices.Contains(notes, "There are more generations of children; --depth prints more of them.") {
		t.Errorf("with a depth of 1: %v\n%s", notes, got)
	}
	got, notes = grown(t, 5, 3)
	if lines := strings.Count(got, "\n"); lines != 4 || !slices.Contains(notes, "There are more than 3 objects; --limit prints more of them.") {
		t.Errorf("with a limit of 3: %v\n%s", notes, got)
	}
}

func TestReadiness(t *testing.T) {
	for text, want := range map[string]string{
		`{kind: Deployment, spec: {replicas: 3}, status: {readyReplicas: 2}}`:                                         "2/3",
		`{kind: DaemonSet, status: {desiredNumberScheduled: 2, numberReady: 1}}`:                                      "1/2",
		`{kind: Pod, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`:                          "Ready",
		`{kind: Pod, status: {phase: Running, conditions: [{type: Ready, status: "False"}]}}`:                         "NotReady",
		`{kind: Node, status: {phase: Running, conditions: [{type: Ready, status: Unknown}]}}`:                        "Running",
		`{kind: Pod, status: {phase: Pending}}`:                                                                       "Pending",
		`{kind: Pod, status: {phase: Succeeded, conditions: [{type: Ready, status: "False", reason: PodCompleted}]}}`: "Succeeded",
		`{kind: Job, status: {conditions: [{type: Failed, status: "False"}, {type: Complete, status: "True"}]}}`:      "Complete",
		`{kind: ConfigMap}`: "",
		`{kind: Pod, metadata: {deletionTimestamp: "2026-01-02T03:04:05Z"}, status: {phase: Running}}`: "being deleted",
		`{kind: Odd, status: {conditions: 1, phase: 2}}`:                                               "",
	} {
		if got := readiness(parse(t, text)); got != want || reason(parse(t, text)) != "" {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"Website.example.com/web"}, {"website.example.com/web"}, {"websites", "web"}, {"websites.v1.example.com", "web"}} {
		if mapping, name, err := connection.Resolve(testMapper(), "tree", args); err != nil || name != "web" || mapping.Resource.Resource != "websites" {
			t.Errorf("%v: got %v, %s, %v", args, mapping, name, err)
		}
	}
	for want, args := range map[string][]string{
		"name one object": {"websites"}, "as KIND.GROUP/NAME": {"websites/web", "web"}, "RESOURCE NAME": {"websites/"},
		`serves no kind "gadget": list them with 'kubectl api-resources'`: {"Gadget/web"},
	} {
		if _, _, err := connection.Resolve(testMapper(), "tree", args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}

// deployment is a cluster with one Deployment, its ReplicaSet, and nothing of metacontroller.k8s.io.
func deployment() connectiontest.Documents {
	list := func(kind, items string) string {
		return `{"kind":"` + kind + `List","apiVersion":"apps/v1","metadata":{},"items":[` + items + `]}`
	}
	return connectiontest.Documents{
		"/api": `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],` +
			`"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod","verbs":["list"]}]}`,
		"/apis/apps/v1": `{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[` +
			`{"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","verbs":["get"]},` +
			`{"name":"replicasets","namespaced":true,"kind":"ReplicaSet","verbs":["list"]}]}`,
		"/apis/apps/v1/namespaces/shop/deployments/web": `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"1"}}`,
		"/apis/apps/v1/namespaces/shop/replicasets": list("ReplicaSet", `{"kind":"ReplicaSet","apiVersion":"apps/v1","metadata":{"name":"web-1","namespace":"shop","uid":"2",`+
			`"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"1","controller":true}]}}`),
		"/api/v1/namespaces/shop/pods": list("Pod", ""),
	}
}

// without is the cluster whose API of controllers answers with a status.
func without(cluster connectiontest.Documents, status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/metacontroller.k8s.io/") {
			w.WriteHeader(status)
			return
		}
		cluster.ServeHTTP(w, r)
	})
}

func TestATreeOfBuiltInKindsNeedsNoControllers(t *testing.T) {
	for name, tc := range map[string]struct {
		code int
		want string // Nothing: the command fails.
	}{
		"Forbidden": {http.StatusForbidden, "Without the controllers,"}, "Unavailable": {http.StatusServiceUnavailable, "Without the controllers,"},
		"NotServed": {http.StatusNotFound, ""}, "Broken": {http.StatusInternalServerError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			printed, err := connectiontest.Run(t, NewCommand, without(deployment(), tc.code), "deployment/web")
			switch {
			case tc.want == "" && err == nil:
				t.Errorf("it printed %q", printed)
			case tc.want != "" && (err != nil || !strings.HasPrefix(printed, tc.want) || !strings.Contains(printed, "web-1")):
				t.Errorf("printed %q, error %v", printed, err)
			}
		})
	}
}

// What the cluster serves was asked a while ago: a kind of children may be gone meanwhile.
func TestAKindThatIsGoneIsNoted(t *testing.T) {
	for what, tc := range map[string]struct{ gone, kind, want string }{
		"children":      {"/apis/apps/v1/namespaces/shop/replicasets", "replicasets.apps", "deployments.apps/web"},
		"grandchildren": {"/api/v1/namespaces/shop/pods", "pods", "replicasets.apps/web-1"},
	} {
		t.Run(what, func(t *testing.T) {
			cluster := deployment()
			delete(cluster, tc.gone)
			printed, err := connectiontest.Run(t, NewCommand, without(cluster, http.StatusForbidden), "deployment/web")
			if err != nil || !strings.Contains(printed, tc.want) || !strings.Contains(printed, "The cluster does not serve "+tc.kind+".") {
				t.Errorf("printed %q, error %v", printed, err)
			}
		})
	}
}

func TestNamesMayHaveANamespace(t *testing.T) {
	for name, test := range map[string]struct {
		scope                 meta.RESTScope
		name                  string
		namespace, want, fail string
	}{
		"a name":                          {meta.RESTScopeNamespace, "web", "", "web", ""},
		"as other commands print it":      {meta.RESTScopeNamespace, "shop/web", "shop", "web", ""},
		"no namespace":                    {meta.RESTScopeNamespace, "/web", "", "", "write NAME or NAMESPACE/NAME"},
		"no name":                         {meta.RESTScopeNamespace, "shop/", "", "", "write NAME or NAMESPACE/NAME"},
		"three parts":                     {meta.RESTScopeNamespace, "a/shop/web", "", "", "write NAME or NAMESPACE/NAME"},
		"a namespace where there is none": {meta.RESTScopeRoot, "shop/web", "", "", "objects of websites.example.com are in no namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			mapping := &meta.RESTMapping{Scope: test.scope, Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "websites"}}
			namespace, got, err := connection.Split(mapping, test.name)
			if namespace != test.namespace || got != test.want || (err == nil) != (test.fail == "") || err != nil && !strings.Contains(err.Error(), test.fail) {
				t.Errorf("got %q, %q, %v", namespace, got, err)
			}
		})
	}
}

// It may be in another namespace.
func TestAnObjectThatIsNotThereIsLookedForEverywhere(t *testing.T) {
	printed, err := connectiontest.Run(t, NewCommand, deployment(), "deployment/other")
	if err == nil || !strings.Contains(err.Error(), "list those that there are with 'kubectl get deployments.apps -A'") {
		t.Errorf("printed %q, error %v", printed, err)
	}
}
