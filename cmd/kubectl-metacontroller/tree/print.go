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
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// none is printed in a column that says nothing of an object.
const none = "-"

// printTable prints a tree with a row for each object.
func printTable(out io.Writer, root *node) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tREADY\tFIELD MANAGERS\tREVISION")
	printRow(w, root, "", "", root.Namespace)
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// printRow prints a node and what is below it. Namespaces are printed where they differ from the one above.
func printRow(w io.Writer, n *node, lead, below, namespace string) {
	name := n.resource + "/" + n.Name
	if n.Namespace != namespace {
		name = n.resource + "/" + n.Namespace + "/" + n.Name
	}
	if !n.Controlled {
		name += " (owned, not controlled)"
	}
	fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\n", lead, name, orNone(n.Ready), orNone(strings.Join(n.FieldManagers, ",")), orNone(n.Revision))
	for i, child := range n.Children {
		if i == len(n.Children)-1 {
			printRow(w, child, below+"└─ ", below+"   ", n.Namespace)
		} else {
			printRow(w, child, below+"├─ ", below+"│  ", n.Namespace)
		}
	}
}

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}
