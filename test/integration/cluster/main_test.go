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

package cluster

import (
	"context"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	engine "github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

const limit = cluster.Limit

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// run starts the engine's view of the shared control plane.
func run(t *testing.T) (*cluster.Cluster, *engine.Cluster) {
	t.Helper()
	plane := cluster.Shared(t)
	c, err := engine.New(engine.Options{Config: plane.Config(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return plane, c
}

// await waits for a channel to be closed or to yield, and returns what it yields.
func await[T any](t *testing.T, what string, c <-chan T) (got T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	select {
	case got = <-c:
	case <-ctx.Done():
		t.Fatalf("waiting for %s: %v", what, ctx.Err())
	}
	return got
}

// deleteAfterwards deletes an object when the test's context has ended.
func deleteAfterwards(t *testing.T, plane *cluster.Cluster, kind, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		if output, err := plane.TryKubectl(ctx, "", "delete", kind, name); err != nil {
			t.Errorf("deleting %s %s: %v\n%s", kind, name, err, output)
		}
	})
}
