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

package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/textdiff"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// reasonSame is that of children that are as they are desired.
const reasonSame = "Same"

// Lines are what is printed of a plan of one parent; none if nothing would be written, and there is nothing to say.
func Lines(parent *v1alpha1.ParentPlan) []textdiff.Line {
	var lines []textdiff.Line
	printParent(textdiff.Printer{Each: func(line textdiff.Line) { lines = append(lines, line) }}, parent)
	return lines
}

// printParent writes what a sync of one parent would do. It writes nothing if that is nothing, and there is nothing to say.
func printParent(p textdiff.Printer, parent *v1alpha1.ParentPlan) {
	if !worthPrinting(parent) {
		return
	}
	name := subresource.NameOf(parent.ParentReference)
	p.Titlef("%s", name)
	if parent.Message != "" {
		p.Notef("not synced now: %s", parent.Message)
	}
	if parent.Error != "" {
		p.Notef("the sync would fail: %s", parent.Error)
	}
	if parent.Delete {
		p.Files(name, "")
		p.Notef("deleted, as the hook wants it")
	}
	if len(parent.Changes) > 0 {
		p.Files(name, name)
		printChanges(p, parent.Changes)
	}
	for _, r := range parent.Revisions {
		p.Notef("%s ControllerRevision %s", strings.ToLower(r.Action), r.Name)
	}
	for i := range parent.Children {
		printChild(p, &parent.Children[i])
	}
}

func worthPrinting(parent *v1alpha1.ParentPlan) bool {
	return parent.Error != "" || parent.Delete || len(parent.Changes)+len(parent.Revisions) > 0 ||
		slices.ContainsFunc(parent.Children, func(child v1alpha1.ChildPlan) bool { return !untouched(&child) })
}

// untouched says of a child that it is as it is desired.
func untouched(child *v1alpha1.ChildPlan) bool {
	return child.Action == v1alpha1.ChildLeave && child.Reason == reasonSame
}

// nameOf names a child as kubectl diff does.
func nameOf(child *v1alpha1.ChildPlan) string {
	parts := []string{strings.ReplaceAll(child.APIVersion, "/", "."), child.Kind, child.Namespace, child.Name}
	if child.Namespace == "" {
		parts = []string{parts[0], child.Kind, child.Name}
	}
	return strings.Join(parts, ".")
}

func printChild(p textdiff.Printer, child *v1alpha1.ChildPlan) {
	name := nameOf(child)
	switch child.Action {
	case v1alpha1.ChildCreate:
		p.Files("", name)
		printMessage(p, child)
		p.Whole(textdiff.Lines("", objectText(child)))
	case v1alpha1.ChildUpdate:
		p.Files(name, name)
		if child.FieldManager != "" {
			p.Notef("applied as field manager %s", child.FieldManager)
		}
		printMessage(p, child)
		printChanges(p, child.Changes)
	case v1alpha1.ChildRecreate:
		p.Files(name, name)
		p.Notef("deleted, and created again by a later sync")
		printChanges(p, child.Changes)
	case v1alpha1.ChildDelete:
		p.Files(name, "")
		p.Notef("deleted, because it is not desired")
	case v1alpha1.ChildAdopt:
		p.Notef("adopt %s: it matches the selector and has no controlling owner", name)
	case v1alpha1.ChildRelease:
		p.Notef("release %s: it does not match the selector any more", name)
	case v1alpha1.ChildRetain:
		p.Notef("keep %s without owner, by onParentDeletion: Retain", name)
	case v1alpha1.ChildLeave:
		if !untouched(child) {
			p.Notef("leave %s%s", name, why(child))
			printPlaces(p, child.Changes)
		}
	default:
		p.Notef("%s %s%s", strings.ToLower(string(child.Action)), name, why(child))
		printPlaces(p, child.Changes)
	}
}

// printMessage prints what the server says of a child that is written: what the dry run of it warns of, for example.
func printMessage(p textdiff.Printer, child *v1alpha1.ChildPlan) {
	if child.Message != "" {
		p.Notef("%s", child.Message)
	}
}

// why says why a child is left or refused.
func why(child *v1alpha1.ChildPlan) string {
	text := ""
	if child.Reason != "" {
		text = " (" + child.Reason + ")"
	}
	if child.Message != "" {
		text += ": " + child.Message
	}
	return text
}

// printPlaces says where a child differs that is not written.
func printPlaces(p textdiff.Printer, changes []v1alpha1.FieldChange) {
	for i := range changes {
		p.Notef("  differs at %s: %s, desired %s", changes[i].Path, short(changes[i].Observed), short(changes[i].Desired))
	}
}

// short is a value in a line.
func short(value *string) string {
	if value == nil {
		return "nothing"
	}
	if runes := []rune(*value); len(runes) > 80 {
		return string(runes[:79]) + "…"
	}
	return *value
}

// bookkeeping is where the server keeps what it applied last, which changes with every other field.
const bookkeeping = "metadata.annotations[metacontroller.k8s.io/last-applied-configuration]"

func printChanges(p textdiff.Printer, changes []v1alpha1.FieldChange) {
	for i := range changes {
		if changes[i].Path == bookkeeping && len(changes) > 1 {
			continue
		}
		p.Place(changes[i].Path)
		before, after := valueText(changes[i].Observed), valueText(changes[i].Desired)
		if before == after {
			// They differ, and what the server shows of them, as of the values of a Secret, does not.
			p.Whole(textdiff.Lines(before, ""))
			p.Whole(textdiff.Lines("", after))
			continue
		}
		p.Whole(textdiff.Lines(before, after))
	}
}

// valueText writes a value as YAML, nothing for none.
func valueText(value *string) string {
	if value == nil {
		return ""
	}
	text, err := yaml.JSONToYAML([]byte(*value))
	if err != nil {
		return *value // It is not JSON, then; it is shown as it is.
	}
	return string(text)
}

// objectText writes what a child is created from as YAML.
func objectText(child *v1alpha1.ChildPlan) string {
	if child.Object == nil {
		return ""
	}
	raw := child.Object.Raw
	if raw == nil {
		encoded, err := json.Marshal(child.Object.Object)
		if err != nil {
			return fmt.Sprintln("# it cannot be written:", err)
		}
		raw = encoded
	}
	return valueText(new(string(raw)))
}
