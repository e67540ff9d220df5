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
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// Markdown is the format of a plan for pull requests.
const Markdown = "markdown"

const (
	// markdownSize is the most that the rows have in bytes: GitHub refuses comments of more than 65,536 characters.
	markdownSize = 60_000
	// shownChanges is how many fields a row has at most.
	shownChanges = 5
)

// printMarkdown writes a plan as GitHub Flavored Markdown: the summary, and a row for whatever would change or fail.
func printMarkdown(out io.Writer, object controllerobject.Object, plan *v1alpha1.ControllerPlanStatus) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### Plan of %s %s\n\n", object.Kind(), code(object.Name()))
	if plan.Summary.Parents == 0 {
		b.WriteString("No parent was looked at.\n")
	} else {
		b.WriteString(Summary(&plan.Summary) + "\n")
	}
	if plan.Hidden > 0 {
		fmt.Fprintf(&b, "\n%s\n", code(subresource.Hidden(plan.Hidden)))
	}
	size, omitted := 0, 0
	for i := range plan.Parents {
		for _, row := range markdownRows(&plan.Parents[i]) {
			if size+len(row) > markdownSize {
				omitted++
				continue
			}
			if size == 0 {
				b.WriteString("\n| Parent | Action | Object | Details |\n|---|---|---|---|\n")
			}
			size += len(row)
			b.WriteString(row)
		}
	}
	if omitted > 0 {
		fmt.Fprintf(&b, "\n%s left out, because comments have a limited size.\n", outputformat.Count(omitted, "row is", "rows are"))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// markdownRows are the rows of one parent.
func markdownRows(parent *v1alpha1.ParentPlan) []string {
	if !worthPrinting(parent) {
		return nil
	}
	name := subresource.NameOf(parent.ParentReference)
	var rows []string
	add := func(action, object string, details ...string) {
		rows = append(rows, "| "+strings.Join([]string{code(name), action, code(object), markdownList(details)}, " | ")+" |\n")
	}
	if parent.Error != "" {
		add("**fails**", name, parent.Error)
	}
	if parent.Delete {
		add("**delete**", name, "deleted, as the hook wants it")
	}
	if len(parent.Changes) > 0 {
		add("update", name, markdownChanges(parent.Changes)...)
	}
	for _, r := range parent.Revisions {
		add(strings.ToLower(r.Action), "ControllerRevision "+r.Name)
	}
	for i := range parent.Children {
		child := &parent.Children[i]
		if untouched(child) {
			continue
		}
		details := markdownChanges(child.Changes)
		if text := strings.TrimPrefix(strings.TrimSpace(why(child)), ": "); text != "" && (child.Message != "" || len(details) == 0) {
			details = append([]string{text}, details...)
		}
		add(markdownAction(child.Action), nameOf(child), details...)
	}
	if parent.Message != "" {
		add("wait", name, "not synced now: "+parent.Message)
	}
	return rows
}

// markdownAction is an action, bold if it loses an object or is not done. It is one of the server, and escaped if it is not known.
func markdownAction(a v1alpha1.ChildAction) string {
	text := strings.ToLower(string(a))
	switch a {
	case v1alpha1.ChildDelete, v1alpha1.ChildRecreate, v1alpha1.ChildRefuse:
		return "**" + text + "**"
	case v1alpha1.ChildCreate, v1alpha1.ChildUpdate, v1alpha1.ChildAdopt, v1alpha1.ChildRelease, v1alpha1.ChildRetain, v1alpha1.ChildLeave:
		return text
	default:
		return code(text)
	}
}

// markdownChanges says which fields change, and what the first of them become.
func markdownChanges(changes []v1alpha1.FieldChange) []string {
	var list []string
	for i := range changes {
		if changes[i].Path == bookkeeping && len(changes) > 1 {
			continue
		}
		list = append(list, fmt.Sprintf("%s: %s → %s", changes[i].Path, short(changes[i].Observed), short(changes[i].Desired)))
	}
	if more := len(list) - shownChanges; more > 0 {
		list = append(list[:shownChanges], outputformat.Count(more, "more field", "more fields"))
	}
	return list
}

// markdownList joins the lines of a cell.
func markdownList(lines []string) string {
	for i := range lines {
		lines[i] = code(lines[i])
	}
	return cmp.Or(strings.Join(lines, "<br>"), subresource.None)
}

// code returns a text that Markdown shows as it is, whoever wrote it: as code, in which GitHub links no names, numbers and addresses, and with
// character references in place of what means something in Markdown or HTML. Characters that show as nothing, or turn the text around, are replaced.
func code(text string) string {
	var b strings.Builder
	b.WriteString("<code>")
	for _, r := range strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "www.", "www\x00") {
		switch {
		case r == 0: // The point of a host, which would be a link.
			b.WriteString("&#46;")
		case strings.ContainsRune("|\\`*_~<>&[]!#@:$", r):
			fmt.Fprintf(&b, "&#%d;", r)
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case !unicode.IsPrint(r):
			b.WriteRune(unicode.ReplacementChar)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + "</code>"
}
