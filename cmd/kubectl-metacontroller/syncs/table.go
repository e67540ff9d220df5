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

package syncs

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// maxTriggers is how many characters of the triggers are printed, unless the table is wide.
const maxTriggers = 32

// clock is how times are printed.
const clock = "15:04:05.000"

// table prints syncs.
type table struct{ subresource.Table }

// print writes a row for each sync, and one for several that did nothing, or failed alike, unless the table is wide.
func (t table) print(out io.Writer, syncs []v1alpha1.ControllerSync, headers bool) error {
	var rows [][]string
	if headers {
		rows = append(rows, t.row("TIME", "NAMESPACE", "RESOURCE", "PARENT", "TRIGGER", "WAIT", "HOOK", "RESULT"))
	}
	printed := slices.Collect(slices.Chunk(syncs, 1))
	if !t.Wide {
		printed = groups(syncs)
	}
	for _, group := range printed {
		rows = append(rows, t.rowOf(group))
	}
	return (&outputformat.Table{Out: out, Wide: t.Wide}).Print(rows...)
}

// rowOf returns the row of syncs that are alike, the latest first.
func (t table) rowOf(syncs []v1alpha1.ControllerSync) []string {
	const none = subresource.None
	s, n := &syncs[0], len(syncs)
	oldest := syncs[n-1].Time.Local().Format(clock)
	if n > 1 && Nothing(s) {
		return t.row(oldest, none, none, none, reasons(syncs), none, none, fmt.Sprintf("%d syncs did nothing since then", n))
	}
	why, took, result := subresource.OneLine(triggers(s)), milliseconds(s.HookMilliseconds), subresource.OneLine(result(s, t.Wide))
	if !t.Wide {
		why = subresource.OneLine(fitted(Causes(s), int(s.MoreTriggers)))
	}
	if n > 1 {
		took, result = none, fmt.Sprintf("%d times since then: %s", n, result)
	}
	return t.row(oldest, cmp.Or(s.Namespace, none), s.GroupResource().String(), s.Name, why, milliseconds(s.WaitMilliseconds), took, result)
}

// groups puts syncs together that follow each other and did nothing, and those that failed alike with nothing but failures between them. Their
// order stays.
func groups(syncs []v1alpha1.ControllerSync) [][]v1alpha1.ControllerSync {
	var found [][]v1alpha1.ControllerSync
	run := 0 // Where the groups begin that the next sync may join.
	for i := range syncs {
		s := &syncs[i]
		if i > 0 && (Nothing(s) != Nothing(&syncs[i-1]) || (s.Error == "") != (syncs[i-1].Error == "")) {
			run = len(found)
		}
		at := slices.IndexFunc(found[run:], func(group []v1alpha1.ControllerSync) bool { return alike(&group[0], s) })
		if at < 0 {
			found = append(found, nil)
			at = len(found) - 1 - run
		}
		found[run+at] = append(found[run+at], *s)
	}
	return found
}

// alike tells whether two syncs did nothing, or failed with one error of one parent after the same triggers.
func alike(a, b *v1alpha1.ControllerSync) bool {
	return Nothing(a) && Nothing(b) || a.Error != "" && a.Error == b.Error && a.ParentReference == b.ParentReference && triggers(a) == triggers(b)
}

// row returns the cells that the table has: how long a parent waited is in a wide one.
func (t table) row(cells ...string) []string {
	if !t.Wide {
		cells = slices.Delete(cells, 5, 6)
	}
	return t.Row(1, cells...)
}

// Nothing tells whether a sync found nothing to do.
func Nothing(s *v1alpha1.ControllerSync) bool {
	return s.Error == "" && len(s.Fields)+len(s.Dropped) == 0 && len(s.Children) == 0 && s.MoreChildren == 0 && !s.Abridged
}

// reasons returns the triggers of several syncs, each reason once.
func reasons(syncs []v1alpha1.ControllerSync) string {
	var found []string
	for i := range syncs {
		for _, trigger := range syncs[i].Triggers {
			if !slices.Contains(found, string(trigger.Reason)) {
				found = append(found, string(trigger.Reason))
			}
		}
	}
	return subresource.OneLine(fitted(found, 0))
}

// fitted joins as many triggers as there is room for, and counts the others.
func fitted(parts []string, more int) string {
	for n := len(parts); n > 0; n-- {
		if text := listed(parts[:n], more+len(parts)-n); utf8.RuneCountInString(text) <= maxTriggers {
			return text
		}
	}
	if len(parts) == 0 {
		return ""
	}
	if more += len(parts) - 1; more > 0 {
		reason, _, _ := strings.Cut(parts[0], " ")
		return listed([]string{reason}, more)
	}
	return outputformat.Middle(parts[0], maxTriggers)
}

// result is what a sync did with children and with the parent, and its error, which comes alone where there is no room for both.
func result(s *v1alpha1.ControllerSync, all bool) string {
	var parts []string
	if s.Error != "" && !all {
		return s.Error
	}
	if done := children(s); done != "" {
		parts = append(parts, done)
	}
	if len(s.Fields) > 0 {
		parts = append(parts, "wrote "+strings.Join(s.Fields, ", "))
	}
	if len(s.Dropped) > 0 {
		parts = append(parts, "the API server dropped "+strings.Join(s.Dropped, ", "))
	}
	if s.Error != "" {
		parts = append(parts, s.Error)
	}
	return strings.Join(parts, "; ")
}

func milliseconds(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

// triggers prints why a parent was synced: the reasons, and the objects that changed beside the parent itself.
func triggers(s *v1alpha1.ControllerSync) string { return listed(Causes(s), int(s.MoreTriggers)) }

// Causes are the triggers of a sync, each as it is printed.
func Causes(s *v1alpha1.ControllerSync) []string {
	var parts []string
	for i := range s.Triggers {
		t := &s.Triggers[i]
		part := string(t.Reason)
		if o := t.Object; o != nil && (o.Group != s.Group || o.Resource != s.Resource || o.Namespace != s.Namespace || o.Name != s.Name) {
			part += " " + o.Kind + "/" + o.Name
		}
		parts = append(parts, part)
	}
	return parts
}

// Children are what a sync did with which child, and why not, each as it is printed.
func Children(s *v1alpha1.ControllerSync) []string {
	var parts []string
	for i := range s.Children {
		child := &s.Children[i]
		part := fmt.Sprintf("%s %s/%s", child.Action, child.Kind, child.Name)
		if child.Reason != "" {
			part += " (" + child.Reason + ")"
		}
		if len(child.ChangedBackBy) > 0 {
			part += " changed back by " + strings.Join(child.ChangedBackBy, " and ")
		}
		parts = append(parts, part)
	}
	return parts
}

// children prints what a sync did with which child, and why not.
func children(s *v1alpha1.ControllerSync) string { return listed(Children(s), int(s.MoreChildren)) }

func listed(parts []string, more int) string {
	if more > 0 {
		parts = append(slices.Clip(parts), fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}
