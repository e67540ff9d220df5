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
	"strings"
	"time"

	"k8s.io/cli-runtime/pkg/printers"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// none is printed in a column that says nothing of a sync.
const none = "-"

// maxText is how many characters of a column are printed, unless the table is wide.
const maxText = 80

// table says which columns are printed.
type table struct {
	// namespace and resource have columns with those of the parents, and wide has all texts in full.
	namespace, resource, wide bool
}

// print writes a row for each sync.
func (t table) print(out io.Writer, now time.Time, syncs []v1alpha1.ControllerSync, headers bool) error {
	w := printers.GetNewTabWriter(out)
	if headers {
		t.row(w, "TIME", "NAMESPACE", "RESOURCE", "PARENT", "TRIGGER", "WAIT", "HOOK", "CHILDREN", "ERROR")
	}
	for i := range syncs {
		s := &syncs[i]
		t.row(w, outputformat.Duration(now.Sub(s.Time.Time))+" ago", cmp.Or(s.Namespace, none), subresource.ResourceOf(s.ParentReference), s.Name,
			t.short(triggers(s)), milliseconds(s.WaitMilliseconds), milliseconds(s.HookMilliseconds), t.short(children(s)), t.short(s.Error))
	}
	return w.Flush()
}

// row writes the cells that the table has, of which the second and third are namespace and resource.
func (t table) row(w io.Writer, cells ...string) {
	shown := cells[:1:1]
	if t.namespace {
		shown = append(shown, cells[1])
	}
	if t.resource {
		shown = append(shown, cells[2])
	}
	fmt.Fprintln(w, strings.Join(append(shown, cells[3:]...), "\t"))
}

func (t table) short(text string) string {
	text = cmp.Or(strings.Join(strings.Fields(text), " "), none)
	if runes := []rune(text); len(runes) > maxText && !t.wide {
		return string(runes[:maxText-1]) + "…"
	}
	return text
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
