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

package apiserver

import (
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/store"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// change is a write that is to be done.
type change struct {
	// version is that of object.
	version *kinds.Version
	// old is nil for a creation.
	old *store.Object
	// object is what is to be stored, nil for a deletion.
	object value.Object
	// entry has who wrote and why.
	entry Write
}

// commit does a write, and returns the object as it is stored, for a deletion as it was. A write that would change nothing is not done.
func (s *Server) commit(c change) *store.Object {
	k := c.version.Kind
	if c.object == nil {
		return s.remove(c)
	}
	stored := c.version.Convert(c.object, k.Storage)
	if k.Custom {
		value.Settle(stored)
	}
	if c.old != nil && unchanged(stored, c.old.Content) {
		return c.old
	}
	revision := s.store.Next()
	stored = withRevision(stored, revision)
	o := newObject(stored, revision)
	if c.version == k.Storage {
		// What was written in another version gets the defaults of this one when it is read.
		o.Memo(k.Storage, func() any { return stored })
	}
	s.record(c, k, o)
	s.table(k).Put(o)
	s.forget(k)
	s.followUp(k, c.old, o)
	return o
}

func (s *Server) remove(c change) *store.Object {
	k := c.version.Kind
	revision := s.store.Next()
	last := newObject(withRevision(s.view(c.old, k.Storage), revision), revision)
	last.Memo(k.Storage, func() any { return last.Content })
	s.record(c, k, nil)
	s.journal[len(s.journal)-1].Revision = revision
	s.table(k).Delete(last)
	s.forget(k)
	s.followUp(k, c.old, nil)
	return last
}

func (s *Server) forget(k *kinds.Kind) {
	if s.options.Remember > 0 {
		s.table(k).Remember(s.options.Remember)
	}
}

// unchanged reports whether a write would change nothing.
func unchanged(o, stored value.Object) bool {
	if len(o) != len(stored) {
		return false
	}
	for key, inner := range o {
		if key != metadataField && !value.Equal(inner, stored[key]) {
			return false
		}
	}
	meta, was := value.Shallow(value.Map(o, "metadata")), value.Map(stored, "metadata")
	meta["resourceVersion"] = was["resourceVersion"]
	return value.Equal(meta, was)
}

// withRevision returns an object that has a revision as its resourceVersion. It shares everything else.
func withRevision(o value.Object, revision int64) value.Object {
	o = value.Shallow(o)
	meta := value.Shallow(value.Map(o, "metadata"))
	meta["resourceVersion"] = text(revision)
	o["metadata"] = meta
	return o
}

func newObject(content value.Object, revision int64) *store.Object {
	meta := value.Map(content, "metadata")
	o := &store.Object{
		Key:      store.Key{Namespace: value.String(meta, "namespace"), Name: value.String(meta, "name")},
		UID:      value.String(meta, "uid"),
		Revision: revision, Content: content,
	}
	if labels := value.Map(meta, "labels"); len(labels) > 0 {
		o.Labels = make(map[string]string, len(labels))
		for k, v := range labels {
			o.Labels[k], _ = v.(string)
		}
	}
	return o
}

// record adds a write to the journal.
func (s *Server) record(c change, k *kinds.Kind, after *store.Object) {
	e, named := c.entry, after
	if named == nil {
		named = c.old
	}
	e.Revision, e.At = named.Revision, s.options.Now()
	e.Group, e.Resource, e.Namespace, e.Name, e.UID = k.Group, k.Plural, named.Namespace, named.Name, named.UID
	if c.old != nil {
		e.Before = s.view(c.old, k.Storage)
	}
	if after != nil {
		e.After = s.view(after, k.Storage)
	}
	s.journal = append(s.journal, e)
}
