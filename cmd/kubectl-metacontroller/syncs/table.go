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

// maxText is how many characters of a column are printed, unless the table is wide.
const maxText = 80

// table prints syncs.
type table struct{ subresource.Table }

// print writes a row for each sync.
func (t table) print(out io.Writer, now time.Time, syncs []v1alpha1.ControllerSync, headers bool) error {
	w := printers.GetNewTabWriter(out)
	if headers {
		t.Row(w, 1, "TIME", "NAMESPACE", "RESOURCE", "PARENT", "TRIGGER", "WAIT", "HOOK", "CHILDREN", "ERROR")
	}
	for i := range syncs {
		s := &syncs[i]
		t.Row(w, 1, outputformat.Duration(now.Sub(s.Time.Time))+" ago", cmp.Or(s.Namespace, subresource.None), subresource.ResourceOf(s.ParentReference), s.Name,
			t.Short(triggers(s), maxText), milliseconds(s.WaitMilliseconds), milliseconds(s.HookMilliseconds), t.Short(children(s), maxText), t.Short(s.Error, maxText))
	}
	return w.Flush()
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
