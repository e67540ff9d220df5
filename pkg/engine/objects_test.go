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

package engine

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/informers/externalversions"
)

// elsewhere is where requests go that are not about controller objects.
type elsewhere struct{}

var errElsewhere = errors.New("asked elsewhere")

// RoundTrip implements http.RoundTripper.
func (elsewhere) RoundTrip(*http.Request) (*http.Response, error) { return nil, errElsewhere }

// stored returns a client of the objects a of both kinds. Statuses are sent to the channel.
func stored(t *testing.T) (client versioned.Interface, statuses chan v1alpha1.ControllerStatus) {
	t.Helper()
	d, err := define(t.Context(), []Composite{{Controller: composite("a", nil), Sync: nothing}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	statuses = make(chan v1alpha1.ControllerStatus, 10)
	o, err := newObjects(append(d.objects, &v1alpha1.DecoratorController{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindDecorator}, ObjectMeta: metav1.ObjectMeta{Name: "a"},
	}), func(kind, name string, status v1alpha1.ControllerStatus) {
		if kind != v1alpha1.KindComposite || name != "a" {
			t.Errorf("a status of %s %s", kind, name)
		}
		statuses <- status
	})
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: "http://in-memory", Transport: elsewhere{}}
	config.Wrap(o.wrap)
	client, err = versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client, statuses
}

func TestControllerObjectsAreListed(t *testing.T) {
	client, _ := stored(t)
	composites, err := client.MetacontrollerV1alpha1().CompositeControllers().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(composites.Items) != 1 || composites.ResourceVersion == "" {
		t.Fatalf("got %+v, %v", composites, err)
	}
	got := composites.Items[0]
	if got.Name != "a" || got.UID == "" || got.Generation != 1 || got.ResourceVersion == "" || got.Spec.Hooks.Sync == nil {
		t.Errorf("got %+v", got)
	}
	if _, err := client.MetacontrollerV1alpha1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{}); !errors.Is(err, errElsewhere) {
		t.Errorf("ControllerRevisions are in the cluster, and the error is %v", err)
	}
	if err := client.MetacontrollerV1alpha1().CompositeControllers().Delete(t.Context(), "a", metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a deletion: %v", err)
	}
}

func TestControllerObjectsAreWatched(t *testing.T) {
	client, statuses := stored(t)
	seen := make(chan *v1alpha1.CompositeController, 10)
	factory := externalversions.NewSharedInformerFactory(client, 0)
	informer := factory.Metacontroller().V1alpha1().CompositeControllers().Informer()
	other := factory.Metacontroller().V1alpha1().DecoratorControllers().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { seen <- o.(*v1alpha1.CompositeController) },
		UpdateFunc: func(_, o any) { seen <- o.(*v1alpha1.CompositeController) },
	}); err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(t.Context())
	t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced, other.HasSynced) {
		t.Fatal("not synced")
	}
	first := <-seen
	if first.Status.ObservedGeneration != 0 || len(first.Finalizers) != 1 || first.Finalizers[0] != v1alpha1.FinalizerParents {
		t.Errorf("at first it is %+v", first)
	}
	controllers := client.MetacontrollerV1alpha1().CompositeControllers()
	patch := func(text string, subresources ...string) error {
		_, err := controllers.Patch(t.Context(), "a", types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
		return err
	}
	const status = `{"metadata":{"name":"a"},"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True","reason":"Running"}]}}`
	if err := errors.Join(patch(status, "status"), patch(status, "status")); err != nil { // The second one changes nothing.
		t.Fatal(err)
	}
	if told := <-statuses; told.ObservedGeneration != 1 || len(told.Conditions) != 1 || len(statuses) > 0 {
		t.Errorf("the program was told of %+v, and %d times more", told, len(statuses))
	}
	second := <-seen
	if second.Status.ObservedGeneration != 1 || second.ResourceVersion == first.ResourceVersion || len(second.Finalizers) != 1 {
		t.Errorf("then it is %+v", second)
	}
	if err := patch(`{"metadata":{"resourceVersion":"` + first.ResourceVersion + `","finalizers":[]}}`); !apierrors.IsConflict(err) {
		t.Errorf("a write of an older version: %v", err)
	}
	if err := patch(`{"metadata":{"resourceVersion":"` + second.ResourceVersion + `","finalizers":[]}}`); err != nil {
		t.Fatal(err)
	}
	if third := <-seen; len(third.Finalizers) != 0 || third.Status.ObservedGeneration != 1 {
		t.Errorf("at last it is %+v", third)
	}
	if _, err := controllers.Patch(t.Context(), "b", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a write of what is not there: %v", err)
	}
}

func TestAWatchBeginsAfterAList(t *testing.T) {
	client, _ := stored(t)
	controllers := client.MetacontrollerV1alpha1().CompositeControllers()
	list, err := controllers.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := controllers.Patch(t.Context(), "a", types.ApplyPatchType, []byte(`{"status":{"observedGeneration":1}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	w, err := controllers.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := <-w.ResultChan(); event.Object.(*v1alpha1.CompositeController).Status.ObservedGeneration != 1 {
		t.Errorf("got %+v", event)
	}
}

func TestConditionsThatTheLogHas(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	ready := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionReady, metav1.ConditionTrue, reason, message)
	}
	served := condition(v1alpha1.ConditionResourcesServed, metav1.ConditionTrue, "Served", "all")
	unknown := condition(v1alpha1.ConditionResourcesServed, metav1.ConditionUnknown, "NotRunning", "no")
	missing := func(what string) metav1.Condition {
		return condition(v1alpha1.ConditionResourcesServed, metav1.ConditionFalse, "ResourceNotFound", what)
	}
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		// want are the messages that are logged.
		want []string
	}{
		"another reason":               {[]metav1.Condition{ready("a", "1"), ready("a", "2"), ready("b", "3")}, []string{"1", "3"}},
		"resources are served":         {[]metav1.Condition{unknown, served}, nil},
		"a resource is missing":        {[]metav1.Condition{unknown, missing("pages"), missing("pages")}, []string{"pages"}},
		"another one is missing":       {[]metav1.Condition{missing("pages"), missing("pages, books")}, []string{"pages", "pages, books"}},
		"what was missing is served":   {[]metav1.Condition{missing("pages"), served}, []string{"pages", "all"}},
		"no other condition is logged": {[]metav1.Condition{condition(v1alpha1.ConditionHooksHealthy, metav1.ConditionFalse, "a", "1")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			ctx := klog.NewContext(t.Context(), funcr.NewJSON(func(line string) {
				var logged struct {
					Message string `json:"message"`
				}
				if err := json.Unmarshal([]byte(line), &logged); err != nil {
					t.Error(err)
				}
				got = append(got, logged.Message)
			}, funcr.Options{}))
			o, former := &objects{}, &unstructured.Unstructured{Object: map[string]any{}}
			for _, c := range tc.conditions {
				status := v1alpha1.ControllerStatus{Conditions: []metav1.Condition{c}}
				fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
				if err != nil {
					t.Fatal(err)
				}
				next := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
				o.tell(ctx, former, next, status)
				former = next
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the log has otherwise (-want +got):\n%s", diff)
			}
		})
	}
}
