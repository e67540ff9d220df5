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

package children

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// strategy is a way in which children are written.
type strategy struct {
	name       string
	serverSide bool
	manager    string
	// flag says that --apply-strategy says it, and the rules do not; else the rules do, and the flag says the opposite.
	flag bool
}

var (
	merged       = strategy{"Merge", false, manager, false}
	applied      = strategy{"ServerSide", true, manager, false}
	theirApplied = strategy{"Metacontroller's server-side apply", true, plan.LegacyManager, false}
	// formerApplied is that of a controller of another name, whose children this one has now.
	formerApplied = strategy{"ServerSide of another name", true, manager + "-before", false}
	mergedByFlag  = strategy{"Merge by the flag", false, manager, true}
	appliedByFlag = strategy{"ServerSide by the flag", true, manager, true}
)

// use changes how the declared children are written, in a process that knows nothing of them.
func (s *scene) use(t *testing.T, way strategy) {
	t.Helper()
	s.serverSide, s.manager = way.serverSide, way.manager
	options, field := reconciler.Options{ServerSideApply: way.serverSide == way.flag}, v1alpha1.ChildApplyStrategy("")
	if !way.flag {
		field = map[bool]v1alpha1.ChildApplyStrategy{false: v1alpha1.ChildApplyMerge, true: v1alpha1.ChildApplyServerSide}[way.serverSide]
	}
	resolver := &reconciler.Resolver{Shared: &reconciler.Shared{Options: options, Cluster: &cluster.Cluster{Discovery: s.discovery}}}
	for i := range s.rules {
		declared := v1alpha1.ResourceRule{APIVersion: s.rules[i].Resource.GroupVersion().String(), Resource: s.rules[i].Resource.Resource}
		resolved, found, err := resolver.Child(t.Context(), declared, s.rules[i].Method, field, nil, "")
		if err != nil || !found || resolved.ServerSide != way.serverSide {
			t.Fatalf("resolving the rule of %v: found %t, server-side %t, %v", declared, found, resolved.ServerSide, err)
		}
		s.rules[i].ServerSide = resolved.ServerSide
	}
	s.restart()
}

// twoRequests reports whether the move of a child is two requests: what the API server sets by itself in an object that is atomic, as in
// valueFrom.fieldRef of a Deployment, counts as a difference until the ownership of its fields has moved. So the child is applied right after the
// request that moves it, which changes nothing, or is a conflict if the controller of Deployments wrote the status in between. Recreate moves first
// and compares then.
func twoRequests(file string, method v1alpha1.ChildUpdateMethod, way strategy) bool {
	inPlace := method == v1alpha1.ChildUpdateInPlace || method == v1alpha1.ChildUpdateRollingInPlace
	return file == "deployment.yaml" && inPlace && way.serverSide
}

// TestAMoveBetweenStrategiesKeepsEveryChild has children written in one way, and then in another: each is written by one request at most, but for
// twoRequests, and nothing of it but our own record changes. Metacontroller's dynamic apply writes what our Merge does.
func TestAMoveBetweenStrategiesKeepsEveryChild(t *testing.T) {
	moves := [][]strategy{{merged, applied, merged, applied}, {applied, merged, applied}, {theirApplied, applied, merged}, {theirApplied, merged, applied}, {formerApplied, applied}, {mergedByFlag, appliedByFlag, mergedByFlag}}
	for _, file := range []string{"pod.yaml", "deployment.yaml", "service-dns.yaml", "configmap.yaml", "gadget"} {
		for _, method := range []v1alpha1.ChildUpdateMethod{
			v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRecreate, v1alpha1.ChildUpdateOnDelete,
			v1alpha1.ChildUpdateRollingInPlace, v1alpha1.ChildUpdateRollingRecreate,
		} {
			if file != "configmap.yaml" && method != v1alpha1.ChildUpdateInPlace && method != v1alpha1.ChildUpdateRecreate {
				continue // When they compare a child differs, and not with what.
			}
			for _, move := range moves {
				t.Run(fmt.Sprintf("%s/%s/%s to %s", file, method, move[0].name, move[1].name), func(t *testing.T) {
					t.Parallel()
					s, content := moving(t, file, method)
					withoutDuplicates(content)
					s.use(t, move[0])
					s.gets(t, plan.Create, content)
					for _, way := range move[1:] {
						s.quiet(t, "before the move to "+way.name, content)
						s.use(t, way)
						limit := int64(1)
						switch {
						case method == v1alpha1.ChildUpdateOnDelete:
							limit = 0
						case twoRequests(file, method, way):
							limit = 2
						}
						s.moves(t, way, content, limit)
					}
				})
			}
		}
	}
}

func moving(t *testing.T, file string, method v1alpha1.ChildUpdateMethod) (*scene, map[string]any) {
	t.Helper()
	if file == "gadget" {
		return gadgetScene(t, method)
	}
	s := newScene(t)
	content := s.load(t, file, method)
	unscheduled(content)
	return s, content
}

// unscheduled keeps a Pod off the node. The scheduler would write that into the spec in the middle of a move, and what stands in for the kubelet
// deletes a Pod by its name alone, which on a slow machine is the next one.
func unscheduled(content map[string]any) {
	if spec, ok := content["spec"].(map[string]any); ok && content["kind"] == "Pod" {
		spec["schedulerName"] = "nobody"
	}
}

// moves syncs until nothing is written, and compares the child with the one before. The limit is that of the requests that write it; if it is two, a
// step has both.
func (s *scene) moves(t *testing.T, way strategy, content map[string]any, limit int64) {
	t.Helper()
	before, sent := s.input(t, nil, content).Observed[0], s.writes.Load()
	both := false
	s.syncs(t, 8, []map[string]any{content}, func(_ int, outcomes []plan.Outcome) {
		for _, o := range outcomes {
			if o.Action == plan.Recreate || o.Action == plan.Delete {
				t.Fatalf("to %s: %s because of %v", way.name, o.Action, o.Changed)
			}
			both = both || o.Migration != nil && o.Body != nil
		}
	})
	if sent = s.writes.Load() - sent; sent > limit || both != (limit > 1) {
		t.Errorf("to %s: %d requests, want %d at most; two in one step: %t", way.name, sent, limit, both)
	}
	after := s.input(t, nil, content).Observed[0]
	// The generation of a Deployment changes with its annotations; what rolls is its spec.
	specBefore, _ := before.Field("spec")
	specAfter, _ := after.Field("spec")
	if after.UID() != before.UID() || !bytes.Equal(specBefore, specAfter) {
		t.Errorf("to %s: UID %s became %s, spec %s became %s", way.name, before.UID(), after.UID(), specBefore, specAfter)
	}
}

// TestFieldsDroppedInAMoveAreRemoved has the hook return less in the edit that changes how its children are written: it is removed as if they
// had been written in the new way before.
func TestFieldsDroppedInAMoveAreRemoved(t *testing.T) {
	for _, move := range [][]strategy{
		{merged, applied},
		{applied, merged},
		{merged, applied, merged},
		{applied, merged, applied},
		{merged, applied, merged, applied},
		{theirApplied, applied},
		{theirApplied, merged},
		{theirApplied, merged, applied},
		{theirApplied, applied, merged, applied},
		{formerApplied, applied},
		{formerApplied, merged},
	} {
		var names []string
		for _, way := range move {
			names = append(names, way.name)
		}
		t.Run(strings.Join(names, " to "), func(t *testing.T) {
			t.Parallel()
			s, content := declared(t, configMap, v1alpha1.ChildUpdateInPlace)
			s.use(t, move[0])
			s.does(t, plan.Create, content)
			for _, way := range move[1 : len(move)-1] {
				s.use(t, way)
				s.moves(t, way, content, 1)
			}
			s.use(t, move[len(move)-1])
			delete(content["data"].(map[string]any), "second")
			for range 3 {
				if _, err := s.sync(t, s.input(t, nil, content)); err != nil {
					t.Fatal(err)
				}
			}
			if got := s.prints(t, s.first(), "{.data}"); got != `{"k":"v"}` {
				t.Errorf("it has %s", got)
			}
			s.quiet(t, "after the move", content)
		})
	}
}
