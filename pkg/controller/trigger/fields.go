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

package trigger

import (
	"bytes"
	"slices"
	"strconv"

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

const metadata = "metadata"

// Fields returns the places at which two states of an object differ, such as spec.replicas, and whether there are more. Lists of different
// lengths differ as a whole. What of the metadata changes with every write is left out.
func Fields(before, after *object.Object) (fields []string, more bool) {
	var a, b [usual]part
	return fieldsOf(parts(a[:0], before.JSON()), parts(b[:0], after.JSON()))
}

func fieldsOf(before, after []part) (fields []string, more bool) {
	var d differences
	d.objects("", before, after)
	slices.Sort(d.paths)
	return d.paths, d.more
}

// metadataDiffers reports whether more of the metadata differs than what changes with every write.
func metadataDiffers(before, after []part) bool {
	was, is := members{list: before}, members{list: after}
	var d differences
	d.compare(metadata, was.value([]byte(metadata)), is.value([]byte(metadata)))
	return len(d.paths) > 0
}

// differences are the places at which two values differ.
type differences struct {
	paths []string
	more  bool
}

func (d *differences) add(path string) {
	switch {
	case len(d.paths) == maxFields:
		d.more = true
	case len(path) > maxPath:
		d.paths = append(d.paths, path[:maxPath]+"...")
	default:
		d.paths = append(d.paths, path)
	}
}

// compare compares two values in JSON, of which an absent one is empty.
func (d *differences) compare(path string, before, after []byte) {
	switch {
	case bytes.Equal(before, after) || d.more:
	case len(before) == 0 || len(after) == 0 || before[0] != after[0] || len(before)+len(after) > maxScan:
		d.add(path)
	case before[0] == '{' || before[0] == '[':
		d.descend(path, before, after)
	default:
		d.add(path)
	}
}

func (d *differences) descend(path string, before, after []byte) {
	var a, b [usual]part
	if before[0] == '{' {
		d.objects(path, parts(a[:0], before), parts(b[:0], after))
	} else {
		d.lists(path, parts(a[:0], before), parts(b[:0], after))
	}
}

func (d *differences) objects(path string, before, after []part) {
	former, later := members{list: before}, members{list: after}
	for _, b := range after {
		a := former.value(b.key)
		if !bytes.Equal(a, b.value) && !isIgnored(path, b.key) {
			d.compare(within(path, b.key), a, b.value)
		}
		if d.more {
			return // What else differs changes nothing, and looking for members that are missing takes long.
		}
	}
	for _, a := range before {
		if later.value(a.key) == nil && !isIgnored(path, a.key) {
			d.add(within(path, a.key))
		}
		if d.more {
			return
		}
	}
}

func within(path string, key []byte) string {
	if path == "" {
		return string(key)
	}
	return path + "." + string(key)
}

// members finds the members of an object by their keys, at once if they are asked for in their order.
type members struct {
	list []part
	// next is the place after the member that was found last.
	next int
}

// value returns the value of the member with a key, nil if there is none.
func (m *members) value(key []byte) []byte {
	at := m.next
	if at >= len(m.list) || !bytes.Equal(m.list[at].key, key) {
		if at = slices.IndexFunc(m.list, func(p part) bool { return bytes.Equal(p.key, key) }); at < 0 {
			return nil
		}
	}
	m.next = at + 1
	return m.list[at].value
}

func isIgnored(path string, key []byte) bool {
	return path == metadata && (string(key) == "resourceVersion" || string(key) == "generation" || string(key) == "managedFields")
}

func (d *differences) lists(path string, before, after []part) {
	if len(before) != len(after) {
		d.add(path)
		return
	}
	for i := range before {
		if !bytes.Equal(before[i].value, after[i].value) {
			d.compare(path+"["+strconv.Itoa(i)+"]", before[i].value, after[i].value)
		}
	}
}

// part is a member of an object, with its key as it is written, or an element of a list.
type part struct{ key, value []byte }

// usual is how many parts most values have at most.
const usual = 8

// parts takes an object or a list in JSON apart, and appends the parts to a list. The JSON is that of an object which was read, and so is
// valid.
func parts(list []part, data []byte) []part {
	for pos := 1; pos < len(data); {
		pos = skipSpace(data, pos)
		if pos >= len(data) || data[pos] == '}' || data[pos] == ']' {
			break
		}
		var p part
		if data[0] == '{' {
			end := skipText(data, pos)
			p.key = data[pos+1 : max(pos+1, end-1)]
			pos = skipSpace(data, end) + 1 // The colon.
			pos = skipSpace(data, pos)
		}
		end := skipValue(data, pos)
		p.value = data[min(pos, len(data)):end]
		list = append(list, p)
		pos = skipSpace(data, end) + 1 // The comma, or the end.
	}
	return list
}

func skipSpace(data []byte, pos int) int {
	for pos < len(data) && (data[pos] == ' ' || data[pos] == '\n' || data[pos] == '\t' || data[pos] == '\r') {
		pos++
	}
	return pos
}

// skipText returns the end of a text that begins at pos.
func skipText(data []byte, pos int) int {
	for pos++; pos < len(data); pos++ {
		switch data[pos] {
		case '\\':
			pos++
		case '"':
			return pos + 1
		}
	}
	return len(data)
}

// skipValue returns the end of a value that begins at pos.
func skipValue(data []byte, pos int) int {
	depth := 0
	for pos < len(data) {
		switch data[pos] {
		case '"':
			pos = skipText(data, pos)
			if depth == 0 {
				return pos
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return pos
			}
			if depth--; depth == 0 {
				return pos + 1
			}
		case ',':
			if depth == 0 {
				return pos
			}
		}
		pos++
	}
	return len(data)
}
