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

package synchistory

import (
	"bytes"
	"encoding/binary"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/record"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/health"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
)

// maxShort is how many bytes of an error are kept of a sync that is abridged.
const maxShort = 128

// packed is a sync as it is remembered: one piece of memory without pointers, which the garbage collector does not look into and which
// keeps nothing else in memory. It has first what stays of the sync in short, and after that all else. It does not change.
//
// Numbers are varints, texts and lists have their lengths before them. [packer.pack] and [packed.sync] must agree; it is read by the
// process that wrote it, and by no other. That of a packer is valid until the packer is used again, and a ring copies it.
type packed struct {
	// began is when the sync did, in nanoseconds since 1970.
	began int64
	bytes []byte
	// long is where that begins which does not stay; it is the end if the sync is abridged.
	long int
}

// abridged reports whether the sync is there in short.
func (p packed) abridged() bool { return p.long == len(p.bytes) }

// abridge returns the sync without its fields and children, and with one trigger.
func (p packed) abridge() packed {
	return packed{began: p.began, bytes: bytes.Clone(p.bytes[:p.long]), long: p.long}
}

// sync returns the sync of a parent, which shares nothing with other ones.
func (p packed) sync(of parent.Key) v1alpha1.ControllerSync {
	u := unpacker{rest: p.bytes}
	s := v1alpha1.ControllerSync{
		ParentReference: v1alpha1.ParentReference{Group: of.Resource().Group, Resource: of.Resource().Resource, Namespace: of.Namespace, Name: of.Name},
		Time:            metav1.NewMicroTime(time.Unix(0, p.began)), Abridged: p.abridged(),
	}
	s.WaitMilliseconds, s.HookMilliseconds, s.DurationMilliseconds = u.signed(), u.signed(), u.signed()
	s.Error = u.text()
	s.MoreTriggers, s.MoreChildren = clamp(u.number()), clamp(u.number())
	triggers, children := u.number(), u.number()
	if triggers > 0 {
		s.Triggers = make([]v1alpha1.SyncTrigger, 1, triggers)
		s.Triggers[0] = u.cause(of)
	}
	u.last = place{}
	if s.Abridged {
		s.MoreTriggers, s.MoreChildren = clamp(int(s.MoreTriggers)+max(triggers-1, 0)), clamp(int(s.MoreChildren)+children)
		return s
	}
	if children > 0 {
		s.Children = make([]v1alpha1.SyncChild, children)
		for i := range s.Children {
			s.Children[i] = u.child()
		}
	}
	if u.flag() {
		s.Error = u.text()
	}
	for i := range triggers {
		if i > 0 {
			s.Triggers = append(s.Triggers, u.cause(of))
		}
		t := &s.Triggers[i]
		t.MoreFields, t.Fields = u.flag(), u.texts()
	}
	s.Fields, s.ChangedBackBy = u.texts(), u.texts()
	return s
}

// wrote returns what stands for what the sync wrote at a place of a child; zero if it did not, or if it is not known whether it did.
// It is not settled if the sync says nothing about it, so that one before it may; it is if the child is another one since.
func (p packed) wrote(key children.Key, path string) (hash record.Hash, settled bool) {
	if p.abridged() {
		return 0, false
	}
	u := unpacker{rest: p.bytes[p.long:]}
	head := unpacker{rest: p.bytes}
	for range head.children() {
		is := u.is(key)
		action, reason := u.piece(), u.piece()
		_ = u.flag()
		written, there := u.at(path)
		for range u.number() {
			_ = u.piece()
		}
		if !is {
			continue
		}
		switch v1alpha1.ChildAction(action) {
		case v1alpha1.ChildCreate, v1alpha1.ChildRecreate, v1alpha1.ChildDelete:
			return 0, true
		case v1alpha1.ChildUpdate:
			if there && len(reason) > 0 {
				return 0, true
			}
			if there {
				return written, true
			}
		case v1alpha1.ChildAdopt, v1alpha1.ChildRelease, v1alpha1.ChildLeave, v1alpha1.ChildRefuse:
		}
	}
	return 0, false
}

// packer has the memory in which a sync is put together, which is used again.
type packer struct {
	// sync has all but the triggers, which belong to the queue, and the children, which are added as they are remembered.
	sync     v1alpha1.ControllerSync
	triggers []trigger.Trigger
	// wrote stands for the versions that the sync made.
	wrote []uint64
	// count is how many children were added.
	count int
	// buffer has the children as they are remembered, until the whole sync is put together in room.
	buffer, room []byte
	// places are where the parent is about to be changed.
	places trigger.Places
	// last is the object that was added last; the zero value for none.
	last v1alpha1.SyncObject
}

// packers has those that were released.
var packers sync.Pool //nolint:gochecknoglobals // It holds nothing but memory.

func newPacker() *packer {
	if p, ok := packers.Get().(*packer); ok {
		return p
	}
	return new(packer)
}

// release says that nobody uses it any more.
func (p *packer) release() {
	p.reset()
	packers.Put(p)
}

// reset makes it empty, and lets all go to which the sync pointed.
func (p *packer) reset() {
	clear(p.sync.Fields)
	p.sync, p.triggers, p.last = v1alpha1.ControllerSync{Fields: p.sync.Fields[:0]}, nil, v1alpha1.SyncObject{}
	p.wrote, p.buffer, p.count = p.wrote[:0], p.buffer[:0], 0
}

// pack returns the sync as it is remembered, in the memory of the packer, which has to be reset after that.
func (p *packer) pack() packed {
	s, children := &p.sync, p.buffer
	p.buffer, p.last = p.room[:0], v1alpha1.SyncObject{}
	short := health.Shorten(s.Error, maxShort)
	p.signed(s.WaitMilliseconds)
	p.signed(s.HookMilliseconds)
	p.signed(s.DurationMilliseconds)
	p.text(short)
	p.number(int(s.MoreTriggers))
	p.number(int(s.MoreChildren))
	p.number(len(p.triggers))
	p.number(p.count)
	if len(p.triggers) > 0 {
		p.cause(&p.triggers[0])
	}
	long := len(p.buffer)
	p.buffer = append(p.buffer, children...)
	p.last = v1alpha1.SyncObject{} // The children were added before.
	cut := len(short) != len(s.Error)
	if p.flag(cut); cut {
		p.text(s.Error)
	}
	for i := range p.triggers {
		t := &p.triggers[i]
		if i > 0 {
			p.cause(t)
		}
		p.flag(t.MoreFields)
		p.texts(t.Fields())
	}
	p.texts(s.Fields)
	p.texts(s.ChangedBackBy)
	p.buffer, p.room = children, p.buffer
	return packed{began: s.Time.UnixNano(), bytes: p.room, long: long}
}

func (p *packer) number(n int) { p.buffer = binary.AppendUvarint(p.buffer, uint64(max(n, 0))) }

func (p *packer) signed(n int64) { p.buffer = binary.AppendVarint(p.buffer, n) }

func (p *packer) flag(is bool) {
	n := byte(0)
	if is {
		n = 1
	}
	p.buffer = append(p.buffer, n)
}

func (p *packer) text(text string) {
	p.number(len(text))
	p.buffer = append(p.buffer, text...)
}

func (p *packer) texts(list []string) {
	p.number(len(list))
	for _, text := range list {
		p.text(text)
	}
}

// object adds an object: of what it has in common with the last one, only that it has.
func (p *packer) object(o *v1alpha1.SyncObject) {
	last := &p.last
	same := last.Kind != "" && last.Kind == o.Kind && last.Group == o.Group && last.Resource == o.Resource && last.Namespace == o.Namespace
	if p.flag(same); !same {
		p.text(o.Group)
		p.text(o.Resource)
		p.text(o.Kind)
		p.text(o.Namespace)
	}
	p.text(o.Name)
	*last = *o
}

// What a trigger is about.
const (
	aboutNothing = iota
	aboutParent
	aboutObject
)

// cause adds what stays of a trigger.
func (p *packer) cause(t *trigger.Trigger) {
	p.text(string(t.Reason))
	switch o := t.Object(); {
	case t.Parent:
		p.number(aboutParent)
		p.text(o.Kind)
	case o != v1alpha1.SyncObject{}:
		p.number(aboutObject)
		p.object(&o)
	default:
		p.number(aboutNothing)
	}
}

// child adds a child, whose fields are given, and for each of them what stands for what was desired there.
func (p *packer) child(c *v1alpha1.SyncChild, fields []string, desired []record.Hash) {
	p.count++
	p.object(&c.SyncObject)
	p.text(string(c.Action))
	p.text(c.Reason)
	p.flag(c.MoreFields)
	p.number(len(fields))
	for i, path := range fields {
		p.text(path)
		p.buffer = binary.LittleEndian.AppendUint64(p.buffer, uint64(desired[i]))
	}
	p.texts(c.ChangedBackBy)
}

// unpacker reads what a packer wrote.
type unpacker struct {
	rest []byte
	last place
}

// place is what an object may have in common with the one before it.
type place struct{ group, resource, kind, namespace []byte }

func (u *unpacker) number() int {
	n, size := binary.Uvarint(u.rest)
	u.rest = u.rest[size:]
	return int(n) //nolint:gosec // It was an int.
}

func (u *unpacker) signed() int64 {
	n, size := binary.Varint(u.rest)
	u.rest = u.rest[size:]
	return n
}

func (u *unpacker) flag() bool {
	is := u.rest[0] == 1
	u.rest = u.rest[1:]
	return is
}

func (u *unpacker) hash() record.Hash {
	n := binary.LittleEndian.Uint64(u.rest)
	u.rest = u.rest[8:]
	return record.Hash(n)
}

// piece returns a text in the memory that is read.
func (u *unpacker) piece() []byte {
	n := u.number()
	piece := u.rest[:n]
	u.rest = u.rest[n:]
	return piece
}

func (u *unpacker) text() string { return string(u.piece()) }

func (u *unpacker) texts() []string {
	n := u.number()
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = u.text()
	}
	return list
}

// place reads where an object is, after which its name follows.
func (u *unpacker) place() place {
	if same := u.flag(); !same {
		u.last = place{group: u.piece(), resource: u.piece(), kind: u.piece(), namespace: u.piece()}
	}
	return u.last
}

func (u *unpacker) object() v1alpha1.SyncObject {
	at := u.place()
	return v1alpha1.SyncObject{
		Group: string(at.group), Resource: string(at.resource), Kind: string(at.kind), Namespace: string(at.namespace), Name: u.text(),
	}
}

func objectOf(p parent.Key, kind string) v1alpha1.SyncObject {
	return v1alpha1.SyncObject{Group: p.Resource().Group, Resource: p.Resource().Resource, Kind: kind, Namespace: p.Namespace, Name: p.Name}
}

// cause reads a trigger of a sync of a parent.
func (u *unpacker) cause(of parent.Key) v1alpha1.SyncTrigger {
	t := v1alpha1.SyncTrigger{Reason: v1alpha1.SyncReason(u.text())}
	switch u.number() {
	case aboutParent:
		o := objectOf(of, u.text())
		t.Object = &o
	case aboutObject:
		o := u.object()
		t.Object = &o
	}
	return t
}

func (u *unpacker) child() v1alpha1.SyncChild {
	c := v1alpha1.SyncChild{SyncObject: u.object(), Action: v1alpha1.ChildAction(u.text()), Reason: u.text(), MoreFields: u.flag()}
	if n := u.number(); n > 0 {
		c.Fields = make([]string, n)
		for i := range c.Fields {
			c.Fields[i], _ = u.text(), u.hash()
		}
	}
	c.ChangedBackBy = u.texts()
	return c
}

// children skips what is before the number of children, and returns that.
func (u *unpacker) children() int {
	for range 3 {
		_ = u.signed()
	}
	_ = u.piece()
	for range 3 {
		_ = u.number()
	}
	return u.number()
}

// is reads an object, and reports whether it is a child.
func (u *unpacker) is(key children.Key) bool {
	at, name := u.place(), u.piece()
	return string(name) == key.Name && string(at.group) == key.Group && string(at.kind) == key.Kind && string(at.namespace) == key.Namespace
}

// at reads the fields of a child, and returns what stands for what was desired at one of them.
func (u *unpacker) at(path string) (desired record.Hash, there bool) {
	for range u.number() {
		same, hash := string(u.piece()) == path, u.hash()
		if same {
			desired, there = hash, true
		}
	}
	return desired, there
}
