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

package explainloop

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

const (
	// named is how many syncs change a place that somebody is known to have changed back, and unnamed how many without a cause of their
	// own change a place when nobody is known, before it counts as a loop.
	named   = 1
	unnamed = 3
)

// lastApplied is the place of what was applied last.
const lastApplied = "metadata.annotations[metacontroller.k8s.io/last-applied-configuration]"

// whole is the place of a loop whose object is created again and again.
const whole = ""

// A loop is a place of an object that syncs write again and again, or without effect.
type loop struct {
	object v1alpha1.SyncObject
	// path is the place, or whole.
	path string
	// writes counts the syncs that wrote the place, and last is when the latest of them began.
	writes int
	last   time.Time
	// by names who changed it back, as far as the syncs know.
	by []string
	// flapping says that the controller leaves the object alone for a while.
	flapping bool
	// dropped says that the API server does not store what is written there.
	dropped bool

	// unasked counts the writes of syncs that nothing but writes of objects, timers and retries caused.
	unasked int
}

// loopsOf returns what the syncs of one parent change again and again, what was changed most often first. The kind is that of the parent.
func loopsOf(syncs []v1alpha1.ControllerSync, kind string) []loop {
	found, deleted := map[string]*loop{}, deletedBy(syncs)
	for i := range syncs {
		s := &syncs[i]
		parent := v1alpha1.SyncObject{Group: s.Group, Resource: s.Resource, Kind: kind, Namespace: s.Namespace, Name: s.Name}
		// Much of a status says how the children are, so that each change of one may be written.
		note(found, s, parent, s.Fields, s.ChangedBackBy, written{unasked: unasked(s) && !has(s, ofChildren)})
		note(found, s, parent, s.Dropped, nil, written{dropped: true})
		for n := range s.Children {
			c := &s.Children[n]
			switch c.Action {
			case v1alpha1.ChildUpdate, v1alpha1.ChildRecreate:
				note(found, s, c.SyncObject, c.Fields, c.ChangedBackBy, written{unasked: unasked(s)})
			case v1alpha1.ChildLeave:
				if c.Reason == reasonFlapping {
					note(found, s, c.SyncObject, placesOf(c), c.ChangedBackBy, written{left: true})
				}
			case v1alpha1.ChildCreate:
				if !deleted[c.SyncObject] {
					note(found, s, c.SyncObject, placesOf(c), nil, written{unasked: unasked(s)})
				}
			case v1alpha1.ChildDelete, v1alpha1.ChildAdopt, v1alpha1.ChildRelease, v1alpha1.ChildRetain, v1alpha1.ChildRefuse:
			}
		}
	}
	var list []loop
	for _, l := range found {
		if l.flapping || l.dropped || len(l.by) > 0 && l.writes >= named || l.unasked >= unnamed {
			list = append(list, *l)
		}
	}
	list = withoutEchoes(list)
	slices.SortFunc(list, func(a, b loop) int {
		return cmp.Or(cmp.Compare(b.writes, a.writes), strings.Compare(keyOf(a.object, a.path), keyOf(b.object, b.path)))
	})
	return list
}

// withoutEchoes leaves out the annotation that is written with each other place of an object, unless it is the only place.
func withoutEchoes(list []loop) []loop {
	others := map[v1alpha1.SyncObject]bool{}
	for i := range list {
		others[list[i].object] = others[list[i].object] || list[i].path != lastApplied
	}
	return slices.DeleteFunc(list, func(l loop) bool { return l.path == lastApplied && others[l.object] })
}

// writtenBy reports whether a sync wrote the place.
func (l *loop) writtenBy(s v1alpha1.ControllerSync) bool {
	same := func(group, resource, namespace, name string) bool {
		return l.object.Group == group && l.object.Resource == resource && l.object.Namespace == namespace && l.object.Name == name
	}
	if same(s.Group, s.Resource, s.Namespace, s.Name) && slices.Contains(s.Fields, l.path) {
		return true
	}
	return slices.ContainsFunc(s.Children, func(c v1alpha1.SyncChild) bool {
		return same(c.Group, c.Resource, c.Namespace, c.Name) && slices.Contains(c.Fields, l.path)
	})
}

// deletedBy returns the children that syncs deleted themselves, to create them again perhaps.
func deletedBy(syncs []v1alpha1.ControllerSync) map[v1alpha1.SyncObject]bool {
	deleted := map[v1alpha1.SyncObject]bool{}
	for i := range syncs {
		for n := range syncs[i].Children {
			if c := &syncs[i].Children[n]; c.Action == v1alpha1.ChildDelete || c.Action == v1alpha1.ChildRecreate {
				deleted[c.SyncObject] = true
			}
		}
	}
	return deleted
}

// placesOf returns the places at which a child differs, or that it is missing as a whole.
func placesOf(c *v1alpha1.SyncChild) []string {
	if len(c.Fields) == 0 {
		return []string{whole}
	}
	return c.Fields
}

// reasonFlapping is that of children that are left alone after many writes.
const reasonFlapping = "Flapping"

// written is how a sync wrote an object.
type written struct {
	// left says that it left the object alone in place of writing it.
	left bool
	// dropped says that the API server did not store it.
	dropped bool
	// unasked says that nothing but writes of objects, timers and retries caused the write.
	unasked bool
}

// note counts what a sync did at places of an object.
func note(found map[string]*loop, s *v1alpha1.ControllerSync, o v1alpha1.SyncObject, places, by []string, w written) {
	for _, path := range places {
		key := keyOf(o, path)
		l := found[key]
		if l == nil {
			l = &loop{object: o, path: path}
			found[key] = l
		}
		if s.Time.After(l.last) {
			l.last = s.Time.Time
		}
		l.dropped = l.dropped || w.dropped
		if w.left {
			l.flapping = true
		} else {
			l.writes++
		}
		if w.unasked {
			l.unasked++
		}
		for _, name := range by {
			if !slices.Contains(l.by, name) {
				l.by = append(l.by, name)
			}
		}
	}
}

func keyOf(o v1alpha1.SyncObject, path string) string {
	return strings.Join([]string{o.Group, o.Resource, o.Namespace, o.Name, path}, "\x00")
}

// asking are triggers after which a write is no surprise.
var asking = []v1alpha1.SyncReason{
	v1alpha1.SyncParentCreated, v1alpha1.SyncParentDeleted, v1alpha1.SyncSpecChanged, v1alpha1.SyncRelatedChanged, v1alpha1.SyncStarted,
	v1alpha1.SyncControllerChanged, v1alpha1.SyncKindChanged, v1alpha1.SyncObstacleGone, v1alpha1.SyncResyncRequested,
}

// ofChildren are triggers after which a write of the parent is no surprise either.
var ofChildren = []v1alpha1.SyncReason{v1alpha1.SyncChildChanged, v1alpha1.SyncChildDeleted}

// unasked reports whether nothing that a person or another object asked for caused a sync.
func unasked(s *v1alpha1.ControllerSync) bool { return s.MoreTriggers == 0 && !has(s, asking) }

// has reports whether one of some reasons is among the triggers of a sync.
func has(s *v1alpha1.ControllerSync, reasons []v1alpha1.SyncReason) bool {
	return slices.ContainsFunc(s.Triggers, func(t v1alpha1.SyncTrigger) bool { return slices.Contains(reasons, t.Reason) })
}
