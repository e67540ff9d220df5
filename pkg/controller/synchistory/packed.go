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
		ParentReference: v1alpha1.ParentReference{Group: of.Resource.Group, Resource: of.Resource.Resource, Namespace: of.Namespace, Name: of.Name},
		Time:            metav1.NewMicroTime(time.Unix(0, p.began)), Abridged: p.abridged(),
	}
	s.WaitMilliseconds, s.HookMilliseconds, s.DurationMilliseconds = u.signed(), u.signed(), u.signed()
	s.Error = u.text()
	s.MoreTriggers, s.MoreChildren = clamp(u.number()), clamp(u.number())
	triggers, children := u.number(), u.number()
	if triggers > 0 {
		s.Triggers = make([]v1alpha1.SyncTrigger, 1, triggers)
		s.Triggers[0] = u.cause()
	}
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
			s.Triggers = append(s.Triggers, u.cause())
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
		_ = u.piece() // Its resource.
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
	// sync has all but the triggers, which belong to the queue.
	sync     v1alpha1.ControllerSync
	triggers []trigger.Trigger
	// paths are the fields of all children, and desired stands for what was desired there, in the same order.
	paths   []string
	desired []record.Hash
	buffer  []byte
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
	clear(p.sync.Children)
	clear(p.sync.Fields)
	clear(p.paths)
	p.sync, p.triggers = v1alpha1.ControllerSync{Children: p.sync.Children[:0], Fields: p.sync.Fields[:0]}, nil
	p.paths, p.desired, p.buffer = p.paths[:0], p.desired[:0], p.buffer[:0]
}

// pack returns the sync as it is remembered, in the memory of the packer.
func (p *packer) pack() packed {
	s := &p.sync
	short := health.Shorten(s.Error, maxShort)
	p.signed(s.WaitMilliseconds)
	p.signed(s.HookMilliseconds)
	p.signed(s.DurationMilliseconds)
	p.text(short)
	p.number(int(s.MoreTriggers))
	p.number(int(s.MoreChildren))
	p.number(len(p.triggers))
	p.number(len(s.Children))
	if len(p.triggers) > 0 {
		p.cause(&p.triggers[0])
	}
	long := len(p.buffer)
	hashes := p.desired
	for i := range s.Children {
		hashes = p.child(&s.Children[i], hashes)
	}
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
		p.texts(t.Fields)
	}
	p.texts(s.Fields)
	p.texts(s.ChangedBackBy)
	return packed{began: s.Time.UnixNano(), bytes: p.buffer, long: long}
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

func (p *packer) object(o *v1alpha1.SyncObject) {
	for _, text := range [...]string{o.Group, o.Kind, o.Namespace, o.Name, o.Resource} {
		p.text(text)
	}
}

// cause adds what stays of a trigger.
func (p *packer) cause(t *trigger.Trigger) {
	p.text(string(t.Reason))
	is := t.Object != v1alpha1.SyncObject{}
	if p.flag(is); is {
		p.object(&t.Object)
	}
}

// child adds a child, whose fields have the first of the hashes, and returns the others.
func (p *packer) child(c *v1alpha1.SyncChild, hashes []record.Hash) []record.Hash {
	p.object(&c.SyncObject)
	p.text(string(c.Action))
	p.text(c.Reason)
	p.flag(c.MoreFields)
	p.number(len(c.Fields))
	for i, path := range c.Fields {
		p.text(path)
		p.buffer = binary.LittleEndian.AppendUint64(p.buffer, uint64(hashes[i]))
	}
	p.texts(c.ChangedBackBy)
	return hashes[len(c.Fields):]
}

// unpacker reads what a packer wrote.
type unpacker struct{ rest []byte }

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

func (u *unpacker) object() v1alpha1.SyncObject {
	return v1alpha1.SyncObject{Group: u.text(), Kind: u.text(), Namespace: u.text(), Name: u.text(), Resource: u.text()}
}

func (u *unpacker) cause() v1alpha1.SyncTrigger {
	t := v1alpha1.SyncTrigger{Reason: v1alpha1.SyncReason(u.text())}
	if u.flag() {
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

// is reads an object up to its resource, and reports whether it is a child.
func (u *unpacker) is(key children.Key) bool {
	same := true
	for _, text := range [...]string{key.Group, key.Kind, key.Namespace, key.Name} {
		same = string(u.piece()) == text && same
	}
	return same
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
