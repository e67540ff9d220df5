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

package subresource

import (
	"cmp"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// None is printed in a column of a table that says nothing of a parent.
const None = "-"

// Table says how parents, and what is known of them, are printed in rows.
type Table struct {
	// Namespace and Resource have columns with those of the parents, and Wide has texts in full.
	Namespace, Resource, Wide bool
}

// Table returns that of parents which were selected.
func (s Selected) Table(object controllerobject.Object, wide bool) Table {
	return Table{Namespace: s.Namespace == "", Resource: wide || len(object.Parents()) > 1, Wide: wide}
}

// Row returns the cells that the table has. Those at the place and behind it are namespace and resource.
func (t Table) Row(place int, cells ...string) []string {
	shown := slices.Clone(cells[:place])
	if t.Namespace {
		shown = append(shown, cells[place])
	}
	if t.Resource {
		shown = append(shown, cells[place+1])
	}
	return append(shown, cells[place+2:]...)
}

// OneLine returns a text in one line, or None.
func OneLine(text string) string { return cmp.Or(strings.Join(strings.Fields(text), " "), None) }
