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

package reconciler

import (
	"fmt"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

// many returns a parent's children, and what a hook wants that returns them as it was shown them: with their status, or without.
func many(t testing.TB, n int, status bool) (observed []*object.Object, desired []children.Desired) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("child-%05d", i)
		content := map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "ns"}, "data": map[string]any{"k": "v"},
		}
		tail := `,"data":{"k":"v"}`
		if status {
			content["status"] = map[string]any{"ready": true}
			tail += `,"status":{"ready":true}`
		}
		observed = append(observed, parse(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns","uid":"u%d",
			"resourceVersion":"%d","annotations":{"metacontroller.k8s.io/last-applied-configuration":%q},
			"ownerReferences":[{"apiVersion":"example.com/v1","kind":"P","name":"p","uid":"p","controller":true}]}%s}`, name, i, i+1,
			fmt.Sprintf(`{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns"}}`, name), tail)))
		desired = append(desired, children.Desired{Key: children.Key{Kind: "ConfigMap", Namespace: "ns", Name: name}, APIVersion: "v1", Content: content})
	}
	return observed, desired
}

// settledChildren prepares a sync that has nothing to do.
func settledChildren(status bool) slope.Prepare {
	return func(t testing.TB, n int) func() {
		c := newControlOf(t, &api{}, v1alpha1.ChildUpdateInPlace)
		observed, desired := many(t, n, status)
		return func() {
			sync := c.sync()
			in, err := sync.gather(t.Context(), observed, desired, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := sync.reconcile(t.Context(), in); err != nil || sync.result.plan.Writes() > 0 {
				t.Fatal(err, sync.result.plan.Writes())
			}
		}
	}
}

func TestASyncThatHasNothingToDoCostsItsChildrenAndNotTheirSquare(t *testing.T) {
	for _, row := range []struct {
		why    string
		status bool
	}{
		{"the hook returns what it wants", false},
		{"the hook returns the children as it was shown them", true},
	} {
		t.Run(row.why, func(t *testing.T) { slope.Check(t, 500, slope.Linear, settledChildren(row.status)) })
	}
}

func BenchmarkSyncOfSettledChildren(b *testing.B) { slope.Benchmark(b, settledChildren(false)) }

func BenchmarkSyncOfChildrenWithStatus(b *testing.B) { slope.Benchmark(b, settledChildren(true)) }
