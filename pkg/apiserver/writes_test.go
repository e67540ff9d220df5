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

package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	applyv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/applyconfiguration/metacontroller/v1alpha1"
)

const timeoutMessage = `spec.hooks.sync.webhook.timeout: Invalid value: "1d": must be a duration in hours, minutes and seconds, ` +
	`such as "1h30m", "90s" or "500ms"`

func TestRefusals(t *testing.T) {
	ask(t, http.MethodPost, composites, compositeJSON("refusals", "")).must(t, http.StatusCreated)
	const badHook = `,"hooks":{"sync":{"webhook":{"url":"http://x","timeout":"1d"}}}`
	for name, test := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		message            string
	}{
		"an unknown field": {
			http.MethodPost, composites + "?fieldValidation=Strict", compositeJSON("new", `,"childrenResources":[]`), nil,
			http.StatusBadRequest, `strict decoding error: unknown field "spec.childrenResources"`,
		},
		"a repeated field": {
			http.MethodPost, composites + "?fieldValidation=Strict", compositeJSON("new", `,"workers":1,"workers":2`), nil,
			http.StatusBadRequest, `strict decoding error: duplicate field "spec.workers"`,
		},
		"a field of the wrong type": {
			http.MethodPost, composites, compositeJSON("new", `,"workers":"many"`), nil,
			http.StatusBadRequest, "json: cannot unmarshal string into Go struct field CompositeControllerSpec.spec.workers of type int32",
		},
		"a rule of the generated validation": {
			http.MethodPost, composites, compositeJSON("new", `,"workers":0`), nil,
			http.StatusUnprocessableEntity, "spec.workers: Invalid value: 0: must be greater than or equal to 1",
		},
		"a rule across fields": {
			http.MethodPost, composites, compositeJSON("new", `,"hooks":{"finalize":{}}`), nil,
			http.StatusUnprocessableEntity, "spec.hooks.finalize.webhook: Required value",
		},
		"a bad duration, posted": {
			http.MethodPost, composites, compositeJSON("new", badHook), nil, http.StatusBadRequest, timeoutMessage,
		},
		"a bad duration, as YAML": {
			http.MethodPost, composites, "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeController\nmetadata: {name: new}\n" +
				"spec: {parentResource: {apiVersion: v1, resource: pods}, hooks: {sync: {webhook: {timeout: 1d}}}}\n",
			[]string{"Content-Type", "application/yaml"},
			http.StatusBadRequest, timeoutMessage,
		},
		"a bad duration, merged": {
			http.MethodPatch, composites + "/refusals", `{"spec":{"hooks":{"sync":{"webhook":{"timeout":"1d"}}}}}`,
			[]string{"Content-Type", string(types.MergePatchType)},
			http.StatusUnprocessableEntity, timeoutMessage,
		},
		"a bad duration, applied": {
			http.MethodPatch, composites + "/new?fieldManager=test", compositeJSON("new", badHook),
			[]string{"Content-Type", string(types.ApplyYAMLPatchType)},
			http.StatusUnprocessableEntity, timeoutMessage,
		},
		"an unknown field, applied": {
			http.MethodPatch, composites + "/new?fieldManager=test", compositeJSON("new", `,"childrenResources":[]`),
			[]string{"Content-Type", string(types.ApplyYAMLPatchType)},
			http.StatusInternalServerError, ".spec.childrenResources: field not declared in schema",
		},
		"an update without resourceVersion": {
			http.MethodPut, composites + "/refusals", compositeJSON("refusals", ""), nil,
			http.StatusUnprocessableEntity, "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
		},
		"an update of nothing": {
			http.MethodPut, composites + "/new", compositeJSON("new", ""), nil,
			http.StatusNotFound, `compositecontrollers.metacontroller.k8s.io "new" not found`,
		},
		"a status of nothing": {
			http.MethodPatch, composites + "/new/status?fieldManager=test",
			`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","status":{"observedGeneration":1}}`,
			[]string{"Content-Type", string(types.ApplyYAMLPatchType)},
			http.StatusNotFound, "not found",
		},
		"a status with the same condition twice": {
			http.MethodPatch, composites + "/refusals/status", `{"status":{"conditions":[{"type":"Ready"},{"type":"Ready"}]}}`,
			[]string{"Content-Type", string(types.MergePatchType)},
			http.StatusUnprocessableEntity, `status.conditions[1]: Duplicate value: {"type":"Ready"`,
		},
		"a revision whose patch is no object": {
			http.MethodPost, groupPath + "/namespaces/default/controllerrevisions",
			`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"new"},"parentPatch":"x"}`, nil,
			http.StatusUnprocessableEntity, "parentPatch: Invalid value",
		},
		"more than etcd can keep": {
			http.MethodPost, composites, compositeJSON("new", `,"hooks":{"sync":{"webhook":{"path":"`+strings.Repeat("x", maxBody)+`"}}}`), nil,
			http.StatusRequestEntityTooLarge, "limit is",
		},
		"more than etcd can keep, applied": {
			http.MethodPatch, composites + "/new?fieldManager=test",
			compositeJSON("new", `,"hooks":{"sync":{"webhook":{"path":"`+strings.Repeat("x", maxBody)+`"}}}`),
			[]string{"Content-Type", string(types.ApplyYAMLPatchType)},
			http.StatusRequestEntityTooLarge, "limit is",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, test.method, test.path, test.body, test.headers...)
			if message := a.message(t); a.status != test.status || !strings.Contains(message, test.message) {
				t.Errorf("got %d %q, want %d and in the message %q", a.status, message, test.status, test.message)
			}
		})
	}
	ask(t, http.MethodGet, composites+"/new", "").must(t, http.StatusNotFound)
}

func TestWarningsReachTheClient(t *testing.T) {
	body := compositeJSON("warned", `,"resyncPeriodSeconds":0,"hooks":{"sync":{"webhook":{"url":"http://x.example"}}}`)
	a := ask(t, http.MethodPost, composites, body).must(t, http.StatusCreated)
	if diff := cmp.Diff([]string{`299 - "spec.resyncPeriodSeconds: values below 1 count as 1"`}, a.warnings); diff != "" {
		t.Errorf("warnings differ (-want +got):\n%s", diff)
	}
	labeled := ask(t, http.MethodPatch, composites+"/warned", `{"metadata":{"labels":{"a":"b"}}}`,
		"Content-Type", string(types.MergePatchType)).must(t, http.StatusOK)
	if len(labeled.warnings) > 0 {
		t.Errorf("who changes a label is warned: %v", labeled.warnings)
	}
	changed := ask(t, http.MethodPatch, composites+"/warned", `{"spec":{"resyncPeriodSeconds":-1}}`,
		"Content-Type", string(types.MergePatchType)).must(t, http.StatusOK)
	if len(changed.warnings) != 1 {
		t.Errorf("who changes the definition is not warned: %v", changed.warnings)
	}
}

// Metacontroller's own tests create its cluster-scoped objects with a namespace (docs/reference/contract.md#s1).
func TestANamespaceInAClusterScopedObjectIsIgnored(t *testing.T) {
	body := strings.Replace(compositeJSON("namespaced", ""), `"name":`, `"namespace":"default","name":`, 1)
	a := ask(t, http.MethodPost, composites, body).must(t, http.StatusCreated)
	var o v1alpha1.CompositeController
	if err := json.Unmarshal([]byte(a.body), &o); err != nil {
		t.Fatal(err)
	}
	if o.Namespace != "" {
		t.Errorf("the object is in namespace %q", o.Namespace)
	}
}

func TestGenerationsAndStatus(t *testing.T) {
	ctx := t.Context()
	c := client(t).MetacontrollerV1alpha1().DecoratorControllers()
	o, err := c.Create(ctx, &v1alpha1.DecoratorController{
		ObjectMeta: metav1.ObjectMeta{Name: "generations", Generation: 7},
		Spec:       v1alpha1.DecoratorControllerSpec{Resources: []v1alpha1.DecoratorControllerResourceRule{}},
		Status:     v1alpha1.DecoratorControllerStatus{ControllerStatus: v1alpha1.ControllerStatus{ObservedGeneration: 5}},
	}, metav1.CreateOptions{})
	expect := func(when string, generation, observed int64) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if o.Generation != generation || o.Status.ObservedGeneration != observed {
			t.Errorf("%s: generation %d, observed %d, want %d and %d", when, o.Generation, o.Status.ObservedGeneration, generation, observed)
		}
	}
	expect("created", 1, 0)
	o.Labels = map[string]string{"a": "b"}
	o.Status.ObservedGeneration = 5
	o, err = c.Update(ctx, o, metav1.UpdateOptions{})
	expect("labeled, with a status that does not count", 1, 0)
	o.Spec.ResyncPeriodSeconds = ptr.To[int32](5)
	o, err = c.Update(ctx, o, metav1.UpdateOptions{})
	expect("changed", 2, 0)
	o.Status.ObservedGeneration = 2
	o.Spec.ResyncPeriodSeconds = nil
	o.Labels = nil
	o, err = c.UpdateStatus(ctx, o, metav1.UpdateOptions{})
	expect("status written, with a spec that does not count", 2, 2)
	if o.Labels["a"] != "b" || *o.Spec.ResyncPeriodSeconds != 5 {
		t.Errorf("the status endpoint changed labels %v or the spec", o.Labels)
	}
	stale := o.DeepCopy()
	stale.ResourceVersion = "1"
	if _, err := c.UpdateStatus(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a stale status is not a conflict: %v", err)
	}
	o.Finalizers = []string{"example.com/wait"}
	o, err = c.Update(ctx, o, metav1.UpdateOptions{})
	expect("a finalizer added", 2, 2)
	if err := c.Delete(ctx, o.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o, err = c.Get(ctx, o.Name, metav1.GetOptions{})
	expect("deleting", 3, 2)
	o.Finalizers = nil
	if _, err := c.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, o.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object is still there without finalizers: %v", err)
	}
}

func TestGenerationOfARevision(t *testing.T) {
	ctx := t.Context()
	c := client(t).MetacontrollerV1alpha1().ControllerRevisions("default")
	r, err := c.Create(ctx, &v1alpha1.ControllerRevision{
		ObjectMeta:  metav1.ObjectMeta{Name: "generations"},
		ParentPatch: runtime.RawExtension{Raw: []byte(`{"spec":{"a":1,"b":2}}`)},
	}, metav1.CreateOptions{})
	expect := func(when string, generation int64) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if r.Generation != generation {
			t.Errorf("%s: generation %d, want %d", when, r.Generation, generation)
		}
	}
	expect("created", 1)
	r.ParentPatch.Raw = []byte(`{"spec": {"b": 2, "a": 1}}`)
	r.Labels = map[string]string{"a": "b"}
	r, err = c.Update(ctx, r, metav1.UpdateOptions{})
	expect("written in another way", 1)
	r.Children = []v1alpha1.ControllerRevisionChildren{{Kind: "Pod", Names: []string{"x"}}}
	r, err = c.Update(ctx, r, metav1.UpdateOptions{})
	expect("with children", 2)
	r.ParentPatch.Raw = []byte(`{"spec":{"a":1}}`)
	r, err = c.Update(ctx, r, metav1.UpdateOptions{})
	expect("with another patch", 3)
}

// Without this, namespaces that hold a revision are never gone (kubernetes/kubernetes#86666).
func TestClientsThatPreferProtobufGetJSON(t *testing.T) {
	revisions := groupPath + "/namespaces/protobuf/controllerrevisions"
	accept := []string{"Accept", "application/vnd.kubernetes.protobuf,application/json"}
	for i := range 3 {
		ask(t, http.MethodPost, revisions, fmt.Sprintf(
			`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"r%d"},"parentPatch":{}}`, i), accept...,
		).must(t, http.StatusCreated)
	}
	for _, request := range []struct{ method, path string }{
		{http.MethodGet, revisions},
		{http.MethodDelete, revisions + "/r0"},
		{http.MethodDelete, revisions},
	} {
		a := ask(t, request.method, request.path, "", accept...).must(t, http.StatusOK)
		if a.media != "application/json" {
			t.Errorf("%s %s answered %s", request.method, request.path, a.media)
		}
	}
	if a := ask(t, http.MethodGet, revisions, ""); !strings.Contains(a.body, `"items":[]`) {
		t.Errorf("something is left: %s", a.body)
	}
	// What has no types of ours in it is there in protobuf all the same.
	metadata := ask(t, http.MethodGet, revisions, "", "Accept",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	metadata.must(t, http.StatusOK)
}

func definition(name string) *applyv1alpha1.CompositeControllerApplyConfiguration {
	return applyv1alpha1.CompositeController(name).WithSpec(applyv1alpha1.CompositeControllerSpec().
		WithParentResource(applyv1alpha1.CompositeControllerParentResourceRule().WithAPIVersion("v1").WithResource("configmaps")).
		WithHooks(applyv1alpha1.CompositeControllerHooks().WithSync(applyv1alpha1.Hook().WithWebhook(
			applyv1alpha1.Webhook().WithURL("http://x/sync")))))
}

func TestApplyingTheSameTwiceWritesOnce(t *testing.T) {
	ctx := t.Context()
	c := client(t).MetacontrollerV1alpha1().CompositeControllers()
	options := metav1.ApplyOptions{FieldManager: "test", Force: true}
	first, err := c.Apply(ctx, definition("twice"), options)
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Apply(ctx, definition("twice"), options)
	if err != nil {
		t.Fatal(err)
	}
	// What was applied, as the server remembers it, is what was applied.
	extracted, err := applyv1alpha1.ExtractCompositeController(second, "test")
	if err != nil {
		t.Fatal(err)
	}
	third, err := c.Apply(ctx, extracted, options)
	if err != nil {
		t.Fatal(err)
	}
	if first.ResourceVersion != second.ResourceVersion || first.ResourceVersion != third.ResourceVersion {
		t.Errorf("versions %s, %s and %s, want the same", first.ResourceVersion, second.ResourceVersion, third.ResourceVersion)
	}
	if first.Generation != 1 {
		t.Errorf("the generation is %d", first.Generation)
	}
}

// The status belongs to the server, and the definition to its author, whatever is in the object that they apply.
func TestApplyOwnsWhatItsEndpointMayWrite(t *testing.T) {
	ctx := t.Context()
	c := client(t).MetacontrollerV1alpha1().CompositeControllers()
	both := definition("owners").WithLabels(map[string]string{"a": "b"}).WithStatus(
		applyv1alpha1.CompositeControllerStatus().WithObservedGeneration(9))
	o, err := c.Apply(ctx, both, metav1.ApplyOptions{FieldManager: "author"})
	if err != nil {
		t.Fatal(err)
	}
	if o.Status.ObservedGeneration != 0 {
		t.Error("the author wrote the status")
	}
	status := applyv1alpha1.CompositeController("owners").WithStatus(applyv1alpha1.CompositeControllerStatus().WithObservedGeneration(1)).
		WithLabels(map[string]string{"a": "c"})
	if o, err = c.ApplyStatus(ctx, status, metav1.ApplyOptions{FieldManager: "server"}); err != nil {
		t.Fatal(err)
	}
	if o.Labels["a"] != "b" || o.Status.ObservedGeneration != 1 {
		t.Errorf("labels %v, status %v", o.Labels, o.Status)
	}
	for manager, fields := range map[string]struct{ has, lacks string }{
		"author": {`"f:spec"`, `"f:status"`},
		"server": {`"f:status"`, `"f:labels"`},
	} {
		owned := ownedBy(o, manager)
		if !strings.Contains(owned, fields.has) || strings.Contains(owned, fields.lacks) {
			t.Errorf("%s owns %s, want %s and not %s", manager, owned, fields.has, fields.lacks)
		}
	}
}

func ownedBy(o *v1alpha1.CompositeController, manager string) string {
	for _, entry := range o.ManagedFields {
		if entry.Manager == manager {
			return entry.FieldsV1.GetRawString()
		}
	}
	return ""
}

// deletions are admission of the shared server: it calls what is stored for the name of an object when that is about to be deleted, once.
var deletions deletionHooks

type deletionHooks struct{ byName sync.Map }

// Handles implements admission.Interface.
func (*deletionHooks) Handles(o admission.Operation) bool { return o == admission.Delete }

// Validate implements admission.ValidationInterface.
func (d *deletionHooks) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	o, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return nil //nolint:nilerr // A collection is asked about as a whole before its objects are.
	}
	if f, ok := d.byName.LoadAndDelete(o.GetName()); ok {
		if call, ok := f.(func()); ok {
			call()
		}
	}
	return nil
}

func TestAnObjectThatIsGivenAFinalizerWhileItIsDeletedStaysUntilThatIsTakenOff(t *testing.T) {
	for name, path := range map[string]string{
		"delete":           composites + "/given-delete",
		"deletecollection": composites + "?fieldSelector=metadata.name%3Dgiven-deletecollection",
	} {
		t.Run(name, func(t *testing.T) {
			object := "given-" + name
			api, patched := client(t).MetacontrollerV1alpha1().CompositeControllers(), false
			ask(t, http.MethodPost, composites, compositeJSON(object, "")).must(t, http.StatusCreated)
			finalizers := func(list string) error {
				_, err := api.Patch(t.Context(), object, types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{})
				return err
			}
			deletions.byName.Store(object, func() {
				if err := finalizers(`["example.com/hold"]`); err != nil {
					t.Errorf("while the object is deleted: %v", err)
				}
				patched = true
			})
			ask(t, http.MethodDelete, path, "").must(t, http.StatusOK)
			if !patched {
				t.Fatal("the deletion was not validated")
			}
			o, err := api.Get(t.Context(), object, metav1.GetOptions{})
			if err != nil {
				t.Fatalf("the object is gone, and its finalizer with it: %v", err)
			}
			if o.DeletionTimestamp == nil || len(o.Finalizers) != 1 {
				t.Errorf("deleted at %v with the finalizers %v, want it to be on its way out with one", o.DeletionTimestamp, o.Finalizers)
			}
			if err := finalizers(`[]`); err != nil {
				t.Fatal(err)
			}
			ask(t, http.MethodGet, composites+"/"+object, "").must(t, http.StatusNotFound)
		})
	}
}
