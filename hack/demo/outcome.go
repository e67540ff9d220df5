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

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/hack/demo/manifests"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

// An outcome is how the syncs of all parents went.
type outcome struct {
	synced int
	// done counts what was done with children.
	done map[v1alpha1.ChildAction]int
	// failing and waiting are parents, with the reason.
	failing, waiting []string
	err              error
}

// String is one line.
func (o outcome) String() string {
	if o.err != nil {
		return o.err.Error()
	}
	if o.synced+len(o.failing)+len(o.waiting) == 0 {
		return "there are no parents"
	}
	parts := []string{counted(o.synced, "parent") + " synced"}
	for _, a := range []struct {
		action v1alpha1.ChildAction
		past   string
	}{
		{v1alpha1.ChildCreate, "created"}, {v1alpha1.ChildUpdate, "updated"}, {v1alpha1.ChildRecreate, "recreated"}, {v1alpha1.ChildDelete, "deleted"},
	} {
		if n := o.done[a.action]; n > 0 {
			parts = append(parts, counted(n, "child")+" "+a.past)
		}
	}
	for _, list := range []struct {
		verb    string
		parents []string
	}{{"failing", o.failing}, {"waiting", o.waiting}} {
		if n := len(list.parents); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s: %s", n, list.verb, list.parents[0]))
		}
	}
	return strings.Join(parts, ", ")
}

func counted(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case what == "child":
		return fmt.Sprintf("%d children", n)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// takenUp tells whether a controller runs as it was applied, or says why it does not.
func (s *stage) takenUp(ctx context.Context, controller *unstructured.Unstructured) (bool, error) {
	status, err := s.kubectl(ctx, "get", controllerPath(controller), "-o", `jsonpath={.metadata.generation} {.status.conditions[?(@.type=="Ready")].observedGeneration}`)
	generation, observed, _ := strings.Cut(status, " ")
	return generation == observed, err
}

func controllerPath(controller *unstructured.Unstructured) string {
	return strings.ToLower(controller.GetKind()) + "s.metacontroller.k8s.io/" + controller.GetName()
}

// settle waits until no parent is in the queue, and tells how they are, and what was done with children after a moment.
func (s *stage) settle(ctx context.Context, since time.Time) outcome {
	o := outcome{done: map[v1alpha1.ChildAction]int{}}
	for _, controller := range s.appliedControllers() {
		if err := s.settleOne(ctx, controller, since, &o); err != nil {
			o.err = fmt.Errorf("%s: %w", manifests.Argument(controller), err)
			break
		}
	}
	return o
}

func (s *stage) settleOne(ctx context.Context, controller *unstructured.Unstructured, since time.Time, o *outcome) error {
	var parents v1alpha1.ControllerParentList
	err := process.Poll(ctx, func(ctx context.Context) (bool, error) {
		// Until the controller runs, there is an error in place of its parents.
		if err := s.subresource(ctx, controller, "parents", &parents); err != nil {
			return false, nil //nolint:nilerr // It is asked again.
		}
		for i := range parents.Items {
			if state := parents.Items[i].State; state == v1alpha1.ParentPending || state == v1alpha1.ParentSyncing {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for i := range parents.Items {
		p := &parents.Items[i]
		name := strings.TrimPrefix(p.Namespace+"/"+p.Name, "/")
		switch p.State {
		case v1alpha1.ParentSynced:
			o.synced++
		case v1alpha1.ParentFailing:
			o.failing = append(o.failing, name+": "+p.LastError)
		default:
			o.waiting = append(o.waiting, fmt.Sprintf("%s: %s", name, p.Message))
		}
	}
	var syncs v1alpha1.ControllerSyncList
	if err := s.subresource(ctx, controller, "syncs", &syncs); err != nil {
		return err
	}
	for i := range syncs.Items {
		if sync := &syncs.Items[i]; !sync.Time.Time.Before(since) {
			for j := range sync.Children {
				o.done[sync.Children[j].Action]++
			}
		}
	}
	return nil
}

// warningsAfter is how long after the syncs the Warnings of them are looked for: they are written beside the syncs.
const warningsAfter = time.Second

// tellWarnings prints the Warnings of controllers that have come since a time, each once. That a sync failed is in the outcome.
func (s *stage) tellWarnings(ctx context.Context, since time.Time) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(warningsAfter):
	}
	var events corev1.EventList
	printed, err := s.kubectl(ctx, "get", "events", "--all-namespaces", "--field-selector=type=Warning,source=metacontroller", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(printed), &events)
	}
	if err != nil {
		fmt.Fprintf(s.out, "    Warnings of the syncs are not known: %v\n", err)
		return
	}
	for _, line := range warningLines(events.Items, since) {
		fmt.Fprintln(s.out, "   ", line)
	}
}

// warningLines returns a line for each Warning that has come since a time.
func warningLines(events []corev1.Event, since time.Time) []string {
	var lines []string
	seen := map[string]bool{}
	for i := range events {
		e := &events[i]
		text := e.Reason + ": " + e.Message
		// Events have whole seconds.
		if seen[text] || e.Reason == "SyncError" || e.LastTimestamp.Time.Before(since.Truncate(time.Second)) {
			continue
		}
		seen[text] = true
		lines = append(lines, fmt.Sprintf("Warning %s, on %s/%s", text, e.InvolvedObject.Kind, e.InvolvedObject.Name))
	}
	return lines
}

// subresource reads one of a controller.
func (s *stage) subresource(ctx context.Context, controller *unstructured.Unstructured, name string, into any) error {
	path := "/apis/" + controller.GetAPIVersion() + "/" + strings.ToLower(controller.GetKind()) + "s/" + controller.GetName() + "/" + name + "?limit=500"
	encoded, err := s.kubectl(ctx, "get", "--raw", path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(encoded), into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}
