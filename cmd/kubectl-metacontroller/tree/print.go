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

package tree

import (
	"cmp"
	"io"
	"regexp"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
)

// printTable prints a tree with a row for each object.
func printTable(out io.Writer, root *Node, wide bool) error {
	t := table{wide: wide}
	t.add("NAME", "STATE", "REVISION", "FIELD MANAGERS", "REASON")
	t.addNode(root, "", "", root.Namespace)
	return (&outputformat.Table{Out: out, Wide: wide}).Print(t.rows...)
}

// table collects rows.
type table struct {
	wide bool
	rows [][]string
}

// add adds a row. Field managers, and names of revisions as they are, are in a wide table.
func (t *table) add(name, state, revision, managers, reason string) {
	const none = subresource.None
	cells := []string{name, cmp.Or(state, none), cmp.Or(revision, none), cmp.Or(managers, none), cmp.Or(reason, none)}
	if !t.wide {
		cells = []string{Short(name), cells[1], Short(cells[2]), cells[4]}
	}
	t.rows = append(t.rows, cells)
}

// digest is that at the end of the name of a revision.
var digest = regexp.MustCompile(`([0-9a-f]{8})[0-9a-f]{32,}`)

// Short returns a name in which a digest has eight digits, as git has them.
func Short(name string) string { return digest.ReplaceAllString(name, "$1") }

// addNode adds a node and what is below it. Namespaces are printed where they differ from the one above.
func (t *table) addNode(n *Node, lead, below, namespace string) {
	name := n.resource + "/" + n.within(namespace)
	if !n.Controlled {
		name += " (owned, not controlled)"
	}
	if n.Stays {
		name += " (stays without its parent)"
	}
	t.add(lead+name, n.Ready, n.Revision, strings.Join(n.FieldManagers, ","), strings.Join(strings.Fields(n.Reason), " "))
	for i, child := range n.Children {
		if i == len(n.Children)-1 {
			t.addNode(child, below+"└─ ", below+"   ", n.Namespace)
		} else {
			t.addNode(child, below+"├─ ", below+"│  ", n.Namespace)
		}
	}
}
