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

package brakes

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// ordered are the numbers of children of which each is deleted by a sync of its own.
var ordered = flag.String("ordered.children", "150", "the numbers of children that are deleted in order, separated by commas")

// inOrder has a hook delete its children one by one: when the parent says so, and when it is finalized. It is never slowed down and never blamed, however
// many there are.
func inOrder(t *testing.T, e *fixture.Environment) {
	for text := range strings.SplitSeq(*ordered, ",") {
		many, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, finalizes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/Finalizing=%t", many, finalizes), func(t *testing.T) {
				f := e.NewTest(t)
				f.Objects = e.Objects(t, f.Namespace, limit+time.Duration(many)*time.Second)
				orderly(f, many, finalizes)
			})
		}
	}
}

func orderly(f *fixture.Test, many int, finalizes bool) {
	// The least and the latest first: a hook that is shown all children and returns all but one of them.
	drained := func(observed hook.ObjectMap) []*hook.Object {
		var list []*hook.Object
		for _, o := range observed["ConfigMap.v1"] {
			list = append(list, fixture.ConfigMap(o.GetName(), map[string]any{"a": "b"}))
		}
		slices.SortFunc(list, func(a, b *hook.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
		return list[:max(0, len(list)-1)]
	}
	respond := func(r *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		left := len(r.Children["ConfigMap.v1"])
		response := &hook.CompositeResponse{Status: map[string]any{"left": left}, Finalized: r.Finalizing && left == 0}
		switch {
		case r.Finalizing, fixture.Value(r.Parent, "spec", "drain") == "yes":
			response.Children = drained(r.Children)
		default:
			for i := range many {
				response.Children = append(response.Children, fixture.ConfigMap(fmt.Sprintf("c-%05d", i), map[string]any{"a": "b"}))
			}
		}
		return response, nil
	}
	at := f.Serve(hooktest.Composite(respond))
	d := fixture.Definition{Kind: fixture.Composite, Sync: at, Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}}}
	if finalizes {
		d.Finalize = at
	}
	c := f.Run(d)
	f.Parent("p", nil)
	f.Await(fixture.Things, "p", "to have all children", func(o *unstructured.Unstructured) bool {
		return fixture.Value(o, "status", "left") == strconv.Itoa(many)
	})
	f.Idle(c)
	began := time.Now()
	if finalizes {
		f.Delete(fixture.Things, "p")
		f.Await(fixture.Things, "p", "to be gone", cluster.Gone)
	} else {
		f.Patch(fixture.Things, "p", `{"spec":{"drain":"yes"}}`)
		f.Await(fixture.Things, "p", "to have no children", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "left") == "0" })
	}
	took := time.Since(began)
	f.T.Logf("%d children are gone after %v, %v each", many, took.Round(time.Millisecond), (took / time.Duration(many)).Round(10*time.Microsecond))
	for _, event := range f.Events("p") {
		if event.Type == corev1.EventTypeWarning {
			f.T.Errorf("%s %s", event.Reason, event.Message)
		}
	}
	list, err := f.Resource(fixture.ConfigMaps).List(f.T.Context(), metav1.ListOptions{LabelSelector: "controller-uid", Limit: 1})
	if err != nil {
		f.T.Fatal(err)
	}
	if len(list.Items) > 0 {
		f.T.Errorf("%s is left", list.Items[0].GetName())
	}
}
