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

package history

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

const (
	// maxFields is how many places of one change are kept.
	maxFields = 8
	// maxPath is how many bytes a place has at most.
	maxPath = 160
	// maxScan is the most bytes of both states of a value that are compared field by field. What is larger counts as one place.
	maxScan = 64 << 10
)

// Fields returns the places at which two states of an object differ, such as spec.replicas, and whether there are more. Lists of different
// lengths differ as a whole. What of the metadata changes with every write is left out.
func Fields(before, after *object.Object) (fields []string, more bool) {
	fields, more, _ = compare(before.JSON(), after.JSON())
	return fields, more
}

// compare returns the places at which two states of an object differ, and says which part of it changed, the most important one of several.
func compare(before, after []byte) (fields []string, more bool, reason v1alpha1.SyncReason) {
	var spec, status, metadata bool
	var room [maxPath]byte
	d := differences{path: room[:0]}
	differing(before, after, func(name string, was, is []byte) {
		n := len(d.found)
		d.path = append(room[:0], name...)
		d.compare(was, is)
		switch name {
		case "metadata":
			metadata = len(d.found) > n
		case "status":
			status = true
		default:
			spec = true
		}
	})
	switch {
	case spec:
		reason = v1alpha1.SyncSpecChanged
	case metadata || !status:
		reason = v1alpha1.SyncMetadataChanged
	default:
		reason = v1alpha1.SyncStatusChanged
	}
	return d.found, d.more, reason
}

// differences are the places at which two values differ.
type differences struct {
	found []string
	more  bool
	// path is the place at which values are compared at present.
	path []byte
}

// add adds the present place.
func (d *differences) add() {
	switch {
	case len(d.found) == maxFields:
		d.more = true
	case len(d.path) > maxPath:
		d.found = append(d.found, string(d.path[:maxPath])+"...")
	default:
		d.found = append(d.found, string(d.path))
	}
}

// compare compares two values in JSON, of which an absent one is empty, at the present place.
func (d *differences) compare(before, after []byte) {
	switch {
	case d.more || bytes.Equal(before, after):
	case len(before) == 0 || len(after) == 0 || before[0] != after[0] || len(before)+len(after) > maxScan:
		d.add()
	case before[0] == '{':
		d.objects(before, after)
	case before[0] == '[':
		d.lists(before, after)
	default:
		d.add()
	}
}

func (d *differences) objects(before, after []byte) {
	here := d.path
	differing(before, after, func(name string, was, is []byte) {
		if !ignored(here, name) {
			d.path = append(append(d.path, '.'), name...)
			d.compare(was, is)
			d.path = here
		}
	})
}

// ignored reports whether a member changes with every write.
func ignored(path []byte, name string) bool {
	return string(path) == "metadata" && (name == "resourceVersion" || name == "generation" || name == "managedFields")
}

func (d *differences) lists(before, after []byte) {
	var a, b [usual]part
	was, is := parts(a[:0], before), parts(b[:0], after)
	if len(was) != len(is) {
		d.add()
		return
	}
	here := d.path
	for i := range was {
		d.path = append(strconv.AppendInt(append(d.path, '['), int64(i), 10), ']')
		d.compare(was[i].value, is[i].value)
		d.path = here
	}
}

// differing visits the members that differ between two objects in JSON, in the order of their names, with both values, of which an absent one is
// empty.
func differing(before, after []byte, visit func(name string, was, is []byte)) {
	var a, b [usual]part
	was, is := sorted(parts(a[:0], before)), sorted(parts(b[:0], after))
	for len(was)+len(is) > 0 {
		switch {
		case len(is) == 0 || len(was) > 0 && was[0].name < is[0].name:
			visit(was[0].name, was[0].value, nil)
			was = was[1:]
		case len(was) == 0 || is[0].name < was[0].name:
			visit(is[0].name, nil, is[0].value)
			is = is[1:]
		default:
			if !bytes.Equal(was[0].value, is[0].value) {
				visit(is[0].name, was[0].value, is[0].value)
			}
			was, is = was[1:], is[1:]
		}
	}
}

// part is a member of an object, or an element of a list.
type part struct {
	name  string
	value []byte
}

// usual is how many parts most values have at most.
const usual = 16

func parts(list []part, data []byte) []part {
	object.EachPart(data, func(name string, value []byte) { list = append(list, part{name, value}) })
	return list
}

func sorted(list []part) []part {
	slices.SortFunc(list, func(a, b part) int { return strings.Compare(a.name, b.name) })
	return list
}
