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

package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// report tells how a controller is doing, in lines. Hooks and counters of one in which nothing is wrong are told where all is asked for.
func report(object controllerobject.Object, now time.Time, all bool) string {
	var b strings.Builder
	status := object.Status()
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	troubles := troublesOf(status.Conditions)
	fmt.Fprintf(&b, "%s %s %s\n", object.Kind(), object.Name(), state(ready, object.Generation()))
	for _, line := range parentLines(status.Counters) {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	if all || len(troubles) > 0 || len(status.LastErrors) > 0 {
		for i := range status.Hooks {
			fmt.Fprintf(&b, "  %s\n", hookLine(&status.Hooks[i], now))
		}
	}
	for _, c := range troubles {
		// Ready repeats what keeps the controller from running.
		if ready == nil || !strings.Contains(oneLine(ready.Message), oneLine(c.Message)) {
			fmt.Fprintf(&b, "  %s is %s (%s): %s\n", c.Type, c.Status, c.Reason, oneLine(c.Message))
		}
	}
	for i := range status.LastErrors {
		e := &status.LastErrors[i]
		fmt.Fprintf(&b, "  %s, %s ago: %s\n", parentName(e), age(e.Time, now), brief(oneLine(e.Message), status.Hooks))
	}
	for i, step := range next(object) {
		if i == 0 {
			b.WriteString("  Next:\n")
		}
		fmt.Fprintf(&b, "    %s\n", step)
	}
	return b.String()
}

// state ends the sentence that begins with the controller's name.
func state(ready *metav1.Condition, generation int64) string {
	switch {
	case ready == nil:
		return "was not taken up by the engine yet."
	case ready.ObservedGeneration < generation:
		return fmt.Sprintf("has a change that the engine has not taken up yet (generation %d, observed %d).", generation, ready.ObservedGeneration)
	case ready.Status == metav1.ConditionTrue:
		return "is ready."
	case ready.Reason == v1alpha1.ReasonPaused:
		return "is paused."
	}
	return fmt.Sprintf("is not ready (%s): %s", ready.Reason, oneLine(ready.Message))
}

// troublesOf returns the conditions that tell of something to look at, Ready left out.
func troublesOf(conditions []metav1.Condition) []metav1.Condition {
	var list []metav1.Condition
	for _, c := range conditions {
		// What does not run has its cause in Ready.
		if c.Type == v1alpha1.ConditionReady || c.Reason == v1alpha1.ReasonNotRunning || c.Reason == v1alpha1.ReasonPaused {
			continue
		}
		wrong := c.Status == metav1.ConditionFalse
		switch c.Type {
		case v1alpha1.ConditionProgressing, v1alpha1.ConditionDeletionsHeld:
			wrong = c.Status == metav1.ConditionTrue
		case v1alpha1.ConditionPaused:
			wrong = c.Reason == v1alpha1.ReasonPausing
		case v1alpha1.ConditionResourcesServed:
			wrong = false // It is a part of Established.
		}
		if wrong {
			list = append(list, c)
		}
	}
	return list
}

// parentLines tell of the parents, and of what counters tell beside them. Without counters nothing is known.
func parentLines(c *v1alpha1.ControllerCounters) []string {
	switch {
	case c == nil:
		return nil
	case c.Parents == 0:
		return []string{"It has no parents."}
	}
	line := fmt.Sprintf("Of %s, %d synced", count(c.Parents, "parent"), c.Synced)
	if c.Failing > 0 {
		line += fmt.Sprintf(", %d failing", c.Failing)
	}
	if c.Pending > 0 {
		line += fmt.Sprintf(", %d waiting to be synced", c.Pending)
	}
	if c.Unsettled > 0 {
		line += fmt.Sprintf(", %d slowed down because they never settle", c.Unsettled)
	}
	lines := []string{fmt.Sprintf("%s. Since the server started: %s, %d failed.", line, count(c.Syncs, "sync"), c.FailedSyncs)}
	var beside []string
	for _, n := range []struct {
		number int64
		what   string
	}{
		{c.RejectedAnswers, "responses of hooks rejected"},
		{c.Conflicts, "creations stopped by an object of another owner"},
		{c.Flapping, "children left alone because they kept changing back, or were deleted each time"},
	} {
		if n.number > 0 {
			beside = append(beside, fmt.Sprintf("%d %s", n.number, n.what))
		}
	}
	if len(beside) > 0 {
		lines = append(lines, strings.Join(beside, ", ")+".")
	}
	return lines
}

// hookLine tells of one hook.
func hookLine(h *v1alpha1.HookStatus, now time.Time) string {
	if h.Calls == 0 {
		return fmt.Sprintf("Hook %s: not called yet.", h.Name)
	}
	line := fmt.Sprintf("Hook %s: %s", h.Name, count(h.Calls, "call"))
	if h.P50Milliseconds != nil && h.P99Milliseconds != nil {
		line += fmt.Sprintf(", half of them within %d ms, 99 of 100 within %d ms", *h.P50Milliseconds, *h.P99Milliseconds)
	}
	if h.LastFailureTime != nil && (h.LastSuccessTime == nil || h.LastFailureTime.After(h.LastSuccessTime.Time)) {
		return fmt.Sprintf("%s; the last one failed %s ago: %s", line, age(*h.LastFailureTime, now), oneLine(h.LastFailure))
	}
	if h.LastSuccessTime != nil {
		line += fmt.Sprintf("; the last one succeeded %s ago", age(*h.LastSuccessTime, now))
	}
	return line + "."
}

// brief returns the error of a parent, in which the failure of a hook is not repeated: the line of the hook has it.
func brief(message string, hooks []v1alpha1.HookStatus) string {
	for i := range hooks {
		if failure := oneLine(hooks[i].LastFailure); failure != "" {
			message = strings.ReplaceAll(message, failure, "as the hook "+hooks[i].Name)
		}
	}
	return message
}

// parentName names the parent of an error as kubectl takes it.
func parentName(e *v1alpha1.ParentError) string {
	resource := schema.GroupResource{Group: e.Group, Resource: e.Resource}.String()
	return strings.Join(slices.DeleteFunc([]string{resource, e.Namespace, e.Name}, func(s string) bool { return s == "" }), "/")
}

func age(t metav1.Time, now time.Time) string { return outputformat.Duration(now.Sub(t.Time)) }

func oneLine(message string) string { return strings.Join(strings.Fields(message), " ") }

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
