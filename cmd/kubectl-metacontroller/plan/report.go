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
	"fmt"
	"io"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/textdiff"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// Report prints a plan that comes in parts. It is for one goroutine.
type Report struct {
	// Format is markdown, json, yaml, or empty for a difference.
	Format string

	printer textdiff.Printer
	// errOut is for what is neither the difference nor the document.
	errOut io.Writer
	all    v1alpha1.ControllerPlanStatus
}

// Part prints a part of the plan, or keeps it for End.
func (r *Report) Part(part *v1alpha1.ControllerPlanStatus) error {
	r.all.Summary.Add(part.Summary)
	r.all.Hidden += part.Hidden
	if r.Format != "" {
		r.all.Parents = append(r.all.Parents, part.Parents...)
		return nil
	}
	for i := range part.Parents {
		printParent(r.printer, &part.Parents[i])
	}
	return nil
}

// End prints the summary, or the whole plan, and returns what the command ends with. The plan is of what is selected among the parents of a
// controller object.
func (r *Report) End(object controllerobject.Object, selected subresource.Selected) error {
	if err := r.encode(object); err != nil {
		return err
	}
	s := &r.all.Summary
	if s.Parents == 0 {
		return r.nothing(object, selected)
	}
	subresource.ReportHidden(r.errOut, r.all.Hidden)
	if r.Format == "" {
		fmt.Fprintln(r.printer.Out, Summary(s))
	}
	switch {
	case s.Failing > 0:
		return &exitstatus.Error{Status: exitstatus.Trouble, Err: fmt.Errorf("%s would fail, as it says above; see how the parents are with '%s parents %s --all'",
			outputformat.Count(s.Failing, "sync", "syncs"), connection.Program, object.Argument())}
	case s.Changing > 0 || s.Refuse > 0: // What is refused without an error is held back, and wanted.
		return exitstatus.ErrDifferent
	}
	return nil
}

// nothing says why the plan is of no parents. That all are hidden is an error, because syncs of them may change something.
func (r *Report) nothing(object controllerobject.Object, selected subresource.Selected) error {
	if r.all.Hidden > 0 {
		return &exitstatus.Error{Status: exitstatus.Trouble, Err: fmt.Errorf("no parent of %s was looked at: %s", object.Argument(), subresource.Hidden(r.all.Hidden))}
	}
	return selected.Nothing(r.errOut, object)
}

func (r *Report) encode(object controllerobject.Object) error {
	switch r.Format {
	case "":
		return nil
	case Markdown:
		return printMarkdown(r.printer.Out, object, &r.all)
	}
	plan := &v1alpha1.ControllerPlan{Status: r.all}
	plan.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("ControllerPlan"))
	return outputformat.PrintDocument(r.printer.Out, r.Format, plan)
}

// Summary says in a sentence what a plan would do.
func Summary(s *v1alpha1.PlanSummary) string {
	var parts []string
	s.EachAction(func(n int64, done string) { parts = append(parts, fmt.Sprintf("%d %s", n, done)) })
	text := fmt.Sprintf("Of %s, %d would change", outputformat.Count(s.Parents, "parent", "parents"), s.Changing)
	if s.Failing > 0 {
		text += fmt.Sprintf(", and the syncs of %d would fail", s.Failing)
	}
	switch {
	case len(parts) > 0:
		return text + ". Children: " + strings.Join(parts, ", ") + "."
	case s.Failing > 0: // Which children they have is not known.
		return text + "."
	}
	return text + ". There are no children."
}
