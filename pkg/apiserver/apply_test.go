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
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	applyv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/applyconfiguration/metacontroller/v1alpha1"
)

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
