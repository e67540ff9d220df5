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

// Condition is a condition of a controller object with the command that tells more of it, or ends what it complains of; empty if there is none.
type Condition struct {
	metav1.Condition

	// Trouble says that it tells of something to look at, and Said that Ready has its message.
	Trouble, Said bool
	Next          string
}

// Report is how a controller is doing.
type Report struct {
	// Heading is a sentence that begins with the name of the controller, and lines tell the rest of it.
	Heading string
	lines   []string
	// Parents are how its parents are doing, and About what counters tell of them, in sentences.
	Parents Parents
	About   []string
	// Conditions are those of its status.
	Conditions []Condition
	// Warnings are those of the last hour, and Next the commands to try next, the most useful one first.
	Warnings, Next []string
}

// report tells how a controller is doing, in lines.
func report(object controllerobject.Object, live *v1alpha1.ControllerParentList, warnings []Warning, now time.Time, all bool) string {
	r := ReportOf(object, live, warnings, now, all)
	var b strings.Builder
	b.WriteString(r.said())
	for i, line := range r.Warnings {
		if i == 0 {
			b.WriteString("  Warnings of the last hour, which may be over:\n")
		}
		fmt.Fprintf(&b, "    %s\n", line)
	}
	for i, step := range r.Next {
		if i == 0 {
			b.WriteString("  Next:\n")
		}
		fmt.Fprintf(&b, "    %s\n", step)
	}
	return b.String()
}

// said is the heading with the lines below it.
func (r *Report) said() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Heading)
	for _, line := range r.lines {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String()
}

func (r *Report) addf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// ReportOf returns how a controller is doing; parents are those of live, unless it is nil, and warnings are those of all controllers. Hooks and
// counters of one in which nothing is wrong are told where all is asked for.
func ReportOf(object controllerobject.Object, live *v1alpha1.ControllerParentList, warnings []Warning, now time.Time, all bool) *Report {
	status := object.Status()
	r := &Report{Parents: parentsOf(status, live), Warnings: warningLines(object, warnings, now)}
	conditions := missingFirst(status.Conditions)
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	troubles := troublesOf(conditions)
	r.Heading = fmt.Sprintf("%s %s %s", object.Kind(), object.Name(), state(ready, object.Generation(), r.Parents.Failing()))
	r.About = parentLines(r.Parents, status.Counters, writtenAgo(object, now))
	r.lines = slices.Clone(r.About)
	// Ready repeats what keeps the controller from running.
	said := func(c metav1.Condition) bool {
		return ready != nil && strings.Contains(oneLine(ready.Message), oneLine(c.Message))
	}
	for _, c := range troubles {
		if !said(c) {
			r.addf("%s is %s (%s): %s", c.Type, c.Status, c.Reason, oneLine(c.Message))
		}
	}
	if all || len(troubles) > 0 || len(r.Parents.Errors) > 0 {
		for i := range status.Hooks {
			r.addf("%s", hookLine(&status.Hooks[i], now, r.said()))
		}
	}
	for i := range r.Parents.Errors {
		e := &r.Parents.Errors[i]
		r.addf("%s, %s ago: %s", parentName(e), age(e.Time, now), brief(oneLine(e.Message), status.Hooks, r.said()))
	}
	r.Next = next(object, r.Parents)
	for _, c := range conditions {
		trouble := slices.ContainsFunc(troubles, func(t metav1.Condition) bool { return t.Type == c.Type })
		r.Conditions = append(r.Conditions, Condition{c, trouble, said(c), cure(object, c, r.Parents)})
	}
	return r
}

// missingFirst returns conditions with that first which says that the cluster does not serve a kind: hooks fail by that, and not the other way round.
func missingFirst(conditions []metav1.Condition) []metav1.Condition {
	if i := slices.IndexFunc(conditions, isMissing); i > 0 {
		return slices.Concat(conditions[i:i+1], conditions[:i], conditions[i+1:])
	}
	return conditions
}

func isMissing(c metav1.Condition) bool {
	return c.Type == v1alpha1.ConditionEstablished && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonResourceNotFound
}

// state ends the sentence that begins with the controller's name.
func state(ready *metav1.Condition, generation, failing int64) string {
	switch {
	case ready == nil || ready.Reason == v1alpha1.ReasonPending:
		return "was not taken up by the engine yet."
	case ready.ObservedGeneration < generation:
		return fmt.Sprintf("has a change that the engine has not taken up yet (generation %d, observed %d).", generation, ready.ObservedGeneration)
	case ready.Status == metav1.ConditionTrue && failing > 0:
		return fmt.Sprintf("is ready, but syncs of %s fail.", outputformat.Count(failing, "parent", "parents"))
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

// parentLines tell of the parents, and of what counters tell beside them, which are as old as it is said. Without counters nothing is known.
func parentLines(parents Parents, c *v1alpha1.ControllerCounters, asOf string) []string {
	switch {
	case !parents.Known:
		return nil
	case parents.Total == 0:
		return []string{"It has no parents."}
	}
	states := []string{fmt.Sprintf("Of %s, %d synced", outputformat.Count(parents.Total, "parent", "parents"), parents.States[v1alpha1.ParentSynced])}
	for _, n := range []struct {
		number int64
		what   string
	}{
		{parents.Failing(), "failing"},
		{parents.States[v1alpha1.ParentPending] + parents.States[v1alpha1.ParentSyncing], "waiting to be synced"},
		{parents.States[v1alpha1.ParentWaiting], "waiting for something else"},
		{parents.States[v1alpha1.ParentHeld], "held"},
		{parents.States[v1alpha1.ParentPaused], "paused"},
	} {
		if n.number > 0 {
			states = append(states, fmt.Sprintf("%d %s", n.number, n.what))
		}
	}
	now := asOf
	if parents.Live {
		now = ""
	}
	lines := []string{strings.Join(states, ", ") + now + "."}
	if c == nil {
		return lines
	}
	counted := []string{fmt.Sprintf("%s, %d failed", outputformat.Count(c.Syncs+c.FailedSyncs, "sync", "syncs"), c.FailedSyncs)}
	for _, n := range []struct {
		number          int64
		one, many, what string
	}{
		{c.Unsettled, "parent", "parents", "slowed down because of never settling"},
		{c.RejectedAnswers, "response", "responses", "of hooks rejected"},
		{c.Conflicts, "creation", "creations", "stopped by an object of another owner"},
		{c.Flapping, "child", "children", "left alone because of changing back, or being deleted each time"},
	} {
		if n.number > 0 {
			counted = append(counted, outputformat.Count(n.number, n.one, n.many)+" "+n.what)
		}
	}
	return append(lines, "Since the controller started: "+strings.Join(counted, ", ")+asOf+".")
}

// hookLine tells of one hook. A failure that was said is not repeated.
func hookLine(h *v1alpha1.HookStatus, now time.Time, said string) string {
	if h.Calls == 0 {
		return fmt.Sprintf("Hook %s: not called yet.", h.Name)
	}
	line := fmt.Sprintf("Hook %s: %s", h.Name, outputformat.Count(h.Calls, "call", "calls"))
	if h.P50Milliseconds != nil && h.P99Milliseconds != nil {
		line += fmt.Sprintf(", half of them within %d ms, 99 of 100 within %d ms", *h.P50Milliseconds, *h.P99Milliseconds)
	}
	if h.LastFailureTime != nil && (h.LastSuccessTime == nil || h.LastFailureTime.After(h.LastSuccessTime.Time)) {
		line += fmt.Sprintf("; the last one failed %s ago", age(*h.LastFailureTime, now))
		if failure := oneLine(h.LastFailure); !strings.Contains(said, failure) {
			return line + ": " + failure
		}
		return line + "."
	}
	if h.LastSuccessTime != nil {
		line += fmt.Sprintf("; the last one succeeded %s ago", age(*h.LastSuccessTime, now))
	}
	return line + "."
}

// brief returns the error of a parent without what was said already: the failure of a hook, of which it may have the beginning, or all of it.
func brief(message string, hooks []v1alpha1.HookStatus, said string) string {
	if strings.Contains(said, message) {
		return "as above"
	}
	for i := range hooks {
		failure := oneLine(hooks[i].LastFailure)
		if failure == "" {
			continue
		}
		message = strings.ReplaceAll(message, failure, "as above")
		begun := strings.Index(message, failure[:min(len(failure), shortest)])
		if begun >= 0 && strings.HasPrefix(failure, strings.TrimRight(message[begun:], ".…")) {
			message = message[:begun] + "as above"
		}
	}
	// That of a response that is rejected is said without the call.
	if what, why, ok := strings.Cut(message, "): "); ok && why != "" && strings.Contains(said, why) {
		return what + "): as above"
	}
	return message
}

// shortest is how much of a failure is enough to know it by.
const shortest = 30

// parentName names the parent of an error as kubectl takes it.
func parentName(e *v1alpha1.ParentError) string {
	resource := schema.GroupResource{Group: e.Group, Resource: e.Resource}.String()
	return strings.Join(slices.DeleteFunc([]string{resource, e.Namespace, e.Name}, func(s string) bool { return s == "" }), "/")
}

func age(t metav1.Time, now time.Time) string { return outputformat.Duration(now.Sub(t.Time)) }

func oneLine(message string) string { return strings.Join(strings.Fields(message), " ") }
