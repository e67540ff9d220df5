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

package manager

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/fake"
)

func TestObjectsAreWrittenByPatches(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "c", UID: "u", ResourceVersion: "7"}
	composite := reconciler.OfComposite(&v1alpha1.CompositeController{ObjectMeta: meta})
	decorator := reconciler.OfDecorator(&v1alpha1.DecoratorController{ObjectMeta: meta})
	status := &v1alpha1.ControllerStatus{ObservedGeneration: 3, FinalizedResources: []v1alpha1.FinalizedResource{{Resource: "services"}}}
	const (
		group    = `"apiVersion":"metacontroller.k8s.io/v1alpha1"`
		observed = `"status":{"observedGeneration":3,"finalizedResources":[{"group":"","resource":"services"}]}`
	)
	for name, tc := range map[string]struct {
		write                 func(context.Context, objects) error
		resource, subresource string
		patchType, body       string
	}{
		"the status of a composite": {
			func(ctx context.Context, o objects) error { return o.PublishStatus(ctx, composite, status) },
			"compositecontrollers", "status", "application/apply-patch+yaml",
			`{` + group + `,"kind":"CompositeController","metadata":{"name":"c","uid":"u"},` + observed + `}`,
		},
		"the status of a decorator in a version": {
			func(ctx context.Context, o objects) error { return o.applyStatus(ctx, decorator, "7", status) },
			"decoratorcontrollers", "status", "application/apply-patch+yaml",
			`{` + group + `,"kind":"DecoratorController","metadata":{"name":"c","resourceVersion":"7","uid":"u"},` + observed + `}`,
		},
		"finalizers": {
			func(ctx context.Context, o objects) error { return o.SetFinalizers(ctx, decorator, []string{"a"}) },
			"decoratorcontrollers", "", "application/merge-patch+json",
			`{` + group + `,"kind":"DecoratorController","metadata":{"finalizers":["a"],"name":"c","resourceVersion":"7","uid":"u"}}`,
		},
		"no finalizers": {
			func(ctx context.Context, o objects) error { return o.SetFinalizers(ctx, composite, nil) },
			"compositecontrollers", "", "application/merge-patch+json",
			`{` + group + `,"kind":"CompositeController","metadata":{"finalizers":[],"name":"c","resourceVersion":"7","uid":"u"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := &fake.Clientset{}
			if err := tc.write(t.Context(), objects{client: client.MetacontrollerV1alpha1()}); err != nil {
				t.Fatal(err)
			}
			patch, ok := client.Actions()[0].(clienttesting.PatchActionImpl)
			if !ok {
				t.Fatalf("got %v", client.Actions())
			}
			got := []string{patch.Resource.Resource, patch.Subresource, string(patch.PatchType), string(patch.Patch), patch.PatchOptions.FieldManager}
			if want := []string{tc.resource, tc.subresource, tc.patchType, tc.body, fieldManager}; !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestFingerprintsTellWhatIsMissingFromWhatIsNotKnown(t *testing.T) {
	p, _ := serveCluster(t, map[string]string{
		"/api/v1":              `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"served","kind":"Served"}]}`,
		"/apis/example.com/v1": "", // It is not available.
	})
	c := &v1alpha1.CompositeController{}
	c.Spec.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "v1", Resource: "served"}
	for _, rule := range []v1alpha1.ResourceRule{{APIVersion: "v1", Resource: "missing"}, {APIVersion: "example.com/v1", Resource: "unknown"}} {
		c.Spec.ChildResources = append(c.Spec.ChildResources, v1alpha1.CompositeControllerChildResourceRule{ResourceRule: rule})
	}
	got := builder{&reconciler.Shared{Cluster: p}}.Fingerprint(t.Context(), reconciler.OfComposite(c))
	if len(got) != 3 || got[0] == "" || got[1] != "missing" || got[2] != "" {
		t.Errorf("got %q", got)
	}
}
