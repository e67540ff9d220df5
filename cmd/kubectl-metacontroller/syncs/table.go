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

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// maxTriggers is how many characters of the triggers are printed, unless the table is wide.
const maxTriggers = 28

// clock is how times are printed.
const clock = "15:04:05.000"

// table prints syncs.
type table struct{ subresource.Table }

// print writes a row for each sync, and one for several in a row that did nothing unless the table is wide.
func (t table) print(out io.Writer, syncs []v1alpha1.ControllerSync, headers bool) error {
	var rows [][]string
	if headers {
		rows = append(rows, t.row("TIME", "NAMESPACE", "RESOURCE", "PARENT", "TRIGGER", "WAIT", "HOOK", "RESULT"))
	}
	for i := 0; i < len(syncs); i++ {
		s := &syncs[i]
		idle := 1
		for !t.Wide && i+idle < len(syncs) && nothing(s) && nothing(&syncs[i+idle]) {
			idle++
		}
		if idle > 1 {
			from := syncs[i+idle-1].Time.Local().Format(clock)
			rows = append(rows, t.row(from, subresource.None, subresource.None, subresource.None, reasons(syncs[i:i+idle]), subresource.None, subresource.None,
				fmt.Sprintf("%d syncs did nothing since then", idle)))
			i += idle - 1
			continue
		}
		why, result := subresource.OneLine(triggers(s)), subresource.OneLine(result(s, t.Wide))
		if !t.Wide {
			why = outputformat.Middle(why, maxTriggers)
		}
		rows = append(rows, t.row(s.Time.Local().Format(clock), cmp.Or(s.Namespace, subresource.None), subresource.ResourceOf(s.ParentReference), s.Name,
			why, milliseconds(s.WaitMilliseconds), milliseconds(s.HookMilliseconds), result))
	}
	return (&outputformat.Table{Out: out, Wide: t.Wide}).Print(rows...)
}

// row returns the cells that the table has: how long a parent waited is in a wide one.
func (t table) row(cells ...string) []string {
	if !t.Wide {
		cells = slices.Delete(cells, 5, 6)
	}
	return t.Row(1, cells...)
}

// nothing tells whether a sync found nothing to do.
func nothing(s *v1alpha1.ControllerSync) bool {
	return s.Error == "" && len(s.Fields) == 0 && len(s.Children) == 0 && s.MoreChildren == 0 && !s.Abridged
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
	return outputformat.Middle(subresource.OneLine(strings.Join(found, ", ")), maxTriggers)
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
	if s.Error != "" {
		parts = append(parts, s.Error)
	}
	return strings.Join(parts, "; ")
}

func milliseconds(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

// triggers prints why a parent was synced: the reasons, and the objects that changed beside the parent itself.
func triggers(s *v1alpha1.ControllerSync) string {
	var parts []string
	for i := range s.Triggers {
		t := &s.Triggers[i]
		part := string(t.Reason)
		if o := t.Object; o != nil && (o.Group != s.Group || o.Resource != s.Resource || o.Namespace != s.Namespace || o.Name != s.Name) {
			part += " " + o.Kind + "/" + o.Name
		}
		parts = append(parts, part)
	}
	return listed(parts, s.MoreTriggers)
}

// children prints what a sync did with which child, and why not.
func children(s *v1alpha1.ControllerSync) string {
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
	return listed(parts, s.MoreChildren)
}

func listed(parts []string, more int32) string {
	if more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}
