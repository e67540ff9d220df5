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
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/textdiff"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

const (
	markdownTitle  = "### Plan of CompositeController <code>website</code>\n\n"
	markdownHeader = "\n| Parent | Action | Object | Details |\n|---|---|---|---|\n"
)

func TestMarkdownHasARowForWhateverChanges(t *testing.T) {
	const row = "| <code>websites.example.com/shop/a</code> | "
	for what, tc := range map[string]struct {
		summary v1alpha1.PlanSummary
		hidden  int64
		plan    v1alpha1.ParentPlan
		want    string
		status  int
	}{
		"nothing": {
			summary: v1alpha1.PlanSummary{Parents: 1, Leave: 1},
			plan:    v1alpha1.ParentPlan{Children: []v1alpha1.ChildPlan{child("Pod", v1alpha1.ChildLeave, func(c *v1alpha1.ChildPlan) { c.Reason = "Same" })}},
			want:    "Of 1 parent, 0 would change. Children: 1 left as they are.\n",
		},
		"children": {
			summary: v1alpha1.PlanSummary{Parents: 1, Changing: 1, Create: 1, Update: 1, Delete: 1}, status: 1,
			plan: v1alpha1.ParentPlan{Message: "the controller is paused", Children: []v1alpha1.ChildPlan{
				child("Pod", v1alpha1.ChildCreate, nil),
				child("Job", v1alpha1.ChildUpdate, func(c *v1alpha1.ChildPlan) {
					c.Changes = []v1alpha1.FieldChange{
						change("spec.n", "1", "2"), change(bookkeeping, "1", "2"), change("a", "", "1"), change("b", "", "1"), change("c", "", "1"), change("d", "1", ""),
						change("e", "", "1"), change("f", "", "1"),
					}
				}),
				child("Pod", v1alpha1.ChildDelete, func(c *v1alpha1.ChildPlan) { c.Reason = "NotDesired" }),
			}},
			want: "Of 1 parent, 1 would change. Children: 1 created, 1 updated, 1 deleted.\n" + markdownHeader +
				row + "create | <code>apps.v1.Pod.shop.a</code> | - |\n" +
				row + "update | <code>apps.v1.Job.shop.a</code> | <code>spec.n&#58; 1 → 2</code><br><code>a&#58; nothing → 1</code><br><code>b&#58; nothing → 1</code>" +
				"<br><code>c&#58; nothing → 1</code><br><code>d&#58; 1 → nothing</code><br><code>2 more fields</code> |\n" +
				row + "**delete** | <code>apps.v1.Pod.shop.a</code> | <code>(NotDesired)</code> |\n" +
				row + "wait | <code>websites.example.com/shop/a</code> | <code>not synced now&#58; the controller is paused</code> |\n",
		},
		"the parent": {
			summary: v1alpha1.PlanSummary{Parents: 1, Changing: 1, Failing: 1}, hidden: 1, status: 2,
			plan: v1alpha1.ParentPlan{
				Error: "no luck", Delete: true, Changes: []v1alpha1.FieldChange{change("status.n", "1", "2")},
				Revisions: []v1alpha1.RevisionPlan{{Action: "Create", Name: "r"}},
			},
			want: "Of 1 parent, 1 would change, and the syncs of 1 would fail.\n" +
				"\n<code>1 parent is left out, because you may not get them, their children or their related objects&#58; see 'kubectl auth can-i --list'</code>\n" +
				markdownHeader +
				row + "**fails** | <code>websites.example.com/shop/a</code> | <code>no luck</code> |\n" +
				row + "**delete** | <code>websites.example.com/shop/a</code> | <code>deleted, as the hook wants it</code> |\n" +
				row + "update | <code>websites.example.com/shop/a</code> | <code>status.n&#58; 1 → 2</code> |\n" +
				row + "create | <code>ControllerRevision r</code> | - |\n",
		},
	} {
		t.Run(what, func(t *testing.T) {
			printed, status := inMarkdown(t, &v1alpha1.ControllerPlanStatus{
				Summary: tc.summary, Hidden: tc.hidden, Parents: []v1alpha1.ParentPlan{parentOf(tc.plan)},
			})
			if diff := cmp.Diff(markdownTitle+tc.want, printed); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if status != tc.status {
				t.Errorf("the status is %d, want %d", status, tc.status)
			}
		})
	}
}

// inMarkdown prints a plan, and returns the status of the process.
func inMarkdown(t *testing.T, plan *v1alpha1.ControllerPlanStatus) (printed string, status int) {
	t.Helper()
	var out bytes.Buffer
	r := &Report{Format: Markdown, printer: textdiff.Printer{Out: &out}, errOut: io.Discard}
	if err := r.Part(plan); err != nil {
		t.Fatal(err)
	}
	status, _ = exitstatus.Of(r.End(website, subresource.Selected{}))
	return out.String(), status
}

// Names and messages are those of whoever wrote objects and hooks. None of them leaves its cell.
func TestMarkdownShowsHostileTextsAsTheyAre(t *testing.T) {
	for what, tc := range map[string]struct{ text, want string }{
		"cells and lines":          {"a|b\\|c\n| d |\r\n", "a&#124;b&#92;&#124;c &#124; d &#124;  "},
		"code":                     {"`` ` </code><b>", "&#96;&#96; &#96; &#60;/code&#62;&#60;b&#62;"},
		"references to characters": {"&lt;&#124;", "&#38;lt;&#38;&#35;124;"},
		"mentions and issues":      {"@everyone #1", "&#64;everyone &#35;1"},
		"links and images":         {"![x](http://e.example) www.e.example", "&#33;&#91;x&#93;(http&#58;//e.example) www&#46;e.example"},
		"emphasis and formulas":    {"*a* _b_ ~~c~~ $d$", "&#42;a&#42; &#95;b&#95; &#126;&#126;c&#126;&#126; &#36;d&#36;"},
		"what is not seen":         {"a\u202eb\u200bc\x1b[0m\xff", "a\uFFFDb\uFFFDc\uFFFD&#91;0m\uFFFD"},
		"other scripts":            {"größe 大", "größe 大"},
	} {
		t.Run(what, func(t *testing.T) {
			if got, want := code(tc.text), "<code>"+tc.want+"</code>"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			printed, _ := inMarkdown(t, &v1alpha1.ControllerPlanStatus{Parents: []v1alpha1.ParentPlan{parentOf(v1alpha1.ParentPlan{Error: tc.text})}})
			lines := strings.Split(strings.TrimSpace(printed), "\n")
			if last := lines[len(lines)-1]; strings.Count(last, "|") != 5 || !strings.HasSuffix(last, tc.want+"</code> |") {
				t.Errorf("the last row is %q", last)
			}
		})
	}
}

func TestMarkdownFitsIntoAComment(t *testing.T) {
	plan := &v1alpha1.ControllerPlanStatus{}
	for range 1000 {
		plan.Parents = append(plan.Parents, parentOf(v1alpha1.ParentPlan{Error: strings.Repeat("|", 100)}))
	}
	printed, _ := inMarkdown(t, plan)
	if len(printed) > 65_536 || !strings.HasSuffix(printed, " rows are left out, because comments have a limited size.\n") {
		t.Errorf("%d bytes are printed, which end with %q", len(printed), printed[len(printed)-80:])
	}
}
