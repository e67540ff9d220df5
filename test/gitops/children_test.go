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

package gitops

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// patch changes an object as a user does who does not use the folder.
func patch(t *testing.T, client dynamic.ResourceInterface, name, text string) *unstructured.Unstructured {
	t.Helper()
	o, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	if err != nil {
		t.Fatalf("patching %s: %v", name, err)
	}
	return o
}

// awaitChildren waits until there are these children and no others.
func (a *application) awaitChildren(t *testing.T, want ...string) {
	t.Helper()
	cluster.Eventually(t, limit, "the children to be "+strings.Join(want, ", "), func(context.Context) (bool, string) {
		found := slices.Sorted(maps.Keys(a.childState(t)))
		return slices.Equal(found, want), strings.Join(found, ", ")
	})
}

// awaitText waits until the controller has made the page of a parent from this text.
func (a *application) awaitText(t *testing.T, name, want string) {
	t.Helper()
	cluster.Eventually(t, limit, "the page of "+name+" to be "+want, func(ctx context.Context) (bool, string) {
		o, err := a.Dynamic.Resource(children[0]).Namespace(a.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		text, _, err := unstructured.NestedString(o.Object, "data", "text")
		return text == want && err == nil, text
	})
}

// sameChildren fails the test unless the children that are there are those of before: who wrote them, and what.
func (a *application) sameChildren(t *testing.T, before map[string]string) {
	t.Helper()
	now := a.childState(t)
	was := maps.Clone(before)
	maps.DeleteFunc(was, func(key, _ string) bool { _, exists := now[key]; return !exists })
	if found := differences(was, now); len(found) > 0 {
		t.Errorf("children have changed:\n%s", strings.Join(found, "\n"))
	}
}

// parentsAreYounger fails the test if a parent was created before its controller ran.
func (a *application) parentsAreYounger(t *testing.T) {
	t.Helper()
	controller, err := a.composites().Get(t.Context(), a.name+"-pages", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("reading the controller: %v", err)
	}
	parents, err := a.parents().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("listing the parents: %v", err)
	}
	ran := condition(controller, "Ready")["lastTransitionTime"]
	for _, parent := range parents.Items {
		// Times of this form are ordered like their texts.
		if created := parent.GetCreationTimestamp().UTC().Format(time.RFC3339); created < fmt.Sprint(ran) {
			t.Errorf("%s was created at %s, and its controller ran at %v", parent.GetName(), created, ran)
		}
	}
}
