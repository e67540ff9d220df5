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
	"hash/maphash"
	"slices"
	"strconv"
	"sync/atomic"

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

var metadata = []byte("metadata")

// Fields returns the places at which two states of an object differ, such as spec.replicas, and whether there are more. Lists of different
// lengths differ as a whole. What of the metadata changes with every write is left out.
func Fields(before, after *object.Object) (fields []string, more bool) {
	c := changeOf(before.JSON(), after.JSON())
	return c.fields, c.more
}

// change is how two states of an object differ.
type change struct {
	fields []string
	more   bool
	// reason says which part of the object it is, the most important one of several.
	reason v1alpha1.SyncReason
}

// changeOf compares two states of an object.
func changeOf(before, after []byte) change {
	var a, b [usual]part
	var d differences
	reason := d.states(unequal(a[:0], b[:0], before, after))
	c := change{more: d.more, reason: reason}
	if d.n > 0 {
		c.fields = slices.Clone(d.found[:d.n])
		slices.Sort(c.fields)
	}
	return c
}

// differences are the places at which two values differ.
type differences struct {
	found [maxFields]string
	n     int
	more  bool
	// path is the place at which values are compared at present, of which there are size bytes; what is too long is cut.
	path [maxPath]byte
	size int
}

// add adds the present place.
func (d *differences) add() {
	if d.n == maxFields {
		d.more = true
		return
	}
	if d.size > maxPath {
		d.found[d.n] = string(d.path[:]) + "..."
	} else {
		d.found[d.n] = intern(d.path[:d.size])
	}
	d.n++
}

// interned are places that were named lately: most changes are at the same few.
var interned [512]atomic.Pointer[string] //nolint:gochecknoglobals // It holds nothing but memory.

// intern returns a text, which is in memory once if it is asked for often.
func intern(text []byte) string {
	slot := &interned[maphash.Bytes(seed, text)%uint64(len(interned))]
	if s := slot.Load(); s != nil && *s == string(text) {
		return *s
	}
	s := string(text)
	slot.Store(&s)
	return s
}

// compare compares two values in JSON, of which an absent one is empty, at the present place.
func (d *differences) compare(before, after []byte) {
	switch {
	case bytes.Equal(before, after) || d.more:
	case len(before) == 0 || len(after) == 0 || before[0] != after[0] || len(before)+len(after) > maxScan:
		d.add()
	case before[0] == '{' || before[0] == '[':
		d.descend(before, after)
	default:
		d.add()
	}
}

func (d *differences) descend(before, after []byte) {
	var a, b [usual]part
	if before[0] == '{' {
		d.objects(unequal(a[:0], b[:0], before, after))
	} else {
		d.lists(parts(a[:0], before, 1), parts(b[:0], after, 1))
	}
}

func (d *differences) objects(before, after []part) {
	here := d.size
	differing(before, after, func(key, was, is []byte) bool {
		if !d.ignores(key) {
			d.enter(key)
			d.compare(was, is)
			d.size = here
		}
		return !d.more // What else differs changes nothing.
	})
}

// states compares two states of an object, and says which part of it changed.
func (d *differences) states(before, after []part) v1alpha1.SyncReason {
	var spec, status, rest bool
	differing(before, after, func(key, was, is []byte) bool {
		found, full := d.n, d.more
		d.enter(key)
		d.compare(was, is)
		d.size = 0
		switch {
		case bytes.Equal(key, metadata):
			rest = d.n > found || full && metadataDiffers(was, is)
		case string(key) == "status":
			status = true
		default:
			spec = true
		}
		return !d.more || !spec
	})
	switch {
	case spec:
		return v1alpha1.SyncSpecChanged
	case rest || !status:
		return v1alpha1.SyncMetadataChanged
	}
	return v1alpha1.SyncStatusChanged
}

// differing visits the members that differ, with both values, of which an absent one is empty, until visit returns false: to look for members
// that are missing takes long.
func differing(before, after []part, visit func(key, was, is []byte) bool) {
	former, later := members{list: before}, members{list: after}
	for _, is := range after {
		if was := former.value(is.key); !bytes.Equal(was, is.value) && !visit(is.key, was, is.value) {
			return
		}
	}
	for _, was := range before {
		if later.value(was.key) == nil && !visit(was.key, was.value, nil) {
			return
		}
	}
}

// metadataDiffers reports whether more of the metadata differs than what changes with every write.
func metadataDiffers(before, after []byte) bool {
	var d differences
	d.enter(metadata)
	d.compare(before, after)
	return d.n > 0
}

// enter goes from the present place to that of one of its members.
func (d *differences) enter(key []byte) {
	if d.size > 0 {
		d.write('.')
	}
	d.write(key...)
}

// enterElement goes from the present place to that of one of its elements.
func (d *differences) enterElement(i int) {
	var number [20]byte
	d.write('[')
	d.write(strconv.AppendInt(number[:0], int64(i), 10)...)
	d.write(']')
}

// write adds to the present place.
func (d *differences) write(text ...byte) {
	if d.size < maxPath {
		copy(d.path[d.size:], text)
	}
	d.size += len(text)
}

// ignores reports whether a member of the present place changes with every write.
func (d *differences) ignores(key []byte) bool {
	return d.size == len(metadata) && bytes.Equal(d.path[:d.size], metadata) && (string(key) == "resourceVersion" || string(key) == "generation" || string(key) == "managedFields")
}

func (d *differences) lists(before, after []part) {
	if len(before) != len(after) {
		d.add()
		return
	}
	here := d.size
	for i := range before {
		if bytes.Equal(before[i].value, after[i].value) {
			continue
		}
		d.enterElement(i)
		d.compare(before[i].value, after[i].value)
		d.size = here
	}
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

// part is a member of an object, with its key as it is written, or an element of a list.
type part struct{ key, value []byte }

// usual is how many parts most values have at most.
const usual = 8

// unequal takes two objects in JSON apart, and appends their members to lists, but for those that are equal in both and stand before the
// first place at which the objects have other keys. It reads what is equal once, which is most of two states of an object.
func unequal(listBefore, listAfter []part, before, after []byte) (membersBefore, membersAfter []part) {
	a, b := 1, 1
	for a < len(before) && b < len(after) && before[a] == '"' && after[b] == '"' {
		key := skipText(after, b) - b
		if !bytes.HasPrefix(before[a:], after[b:b+key]) || !isValueAfter(after, b+key) {
			break
		}
		end := skipValue(after, b+key+1)
		if !isEnd(after, end) {
			break // It has space around it.
		}
		same := a + end - b
		if !isEnd(before, same) || !bytes.Equal(before[a:same], after[b:end]) {
			former := skipValue(before, a+key+1)
			if !isValueAfter(before, a+key) || !isEnd(before, former) {
				break
			}
			name := after[b+1 : b+key-1]
			listBefore, listAfter = append(listBefore, part{name, before[a+key+1 : former]}), append(listAfter, part{name, after[b+key+1 : end]})
			same = former
		}
		if a, b = same, end; before[a] != ',' || after[b] != ',' {
			break
		}
		a, b = a+1, b+1
	}
	return parts(listBefore, before, a), parts(listAfter, after, b)
}

// isValueAfter reports whether there is a colon at a place, and a value without space behind it.
func isValueAfter(data []byte, pos int) bool {
	return pos+1 < len(data) && data[pos] == ':' && data[pos+1] > ' '
}

// isEnd reports whether a member ends at a place, without space behind it.
func isEnd(data []byte, pos int) bool {
	return pos < len(data) && (data[pos] == ',' || data[pos] == '}')
}

// parts takes an object or a list in JSON apart, from the place before or after one of its parts on, and appends the parts to a list. The
// JSON is that of an object which was read, and so is valid.
func parts(list []part, data []byte, pos int) []part {
	for pos < len(data) {
		if data[pos] == ',' {
			pos++
		}
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
