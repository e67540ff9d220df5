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

package cache

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// ahead is an object that the store shows as the response to a write had it, before the event of that write has come.
type ahead struct {
	// versions are those of responses whose events are to come, in ascending order. The store shows the last one.
	versions []uint64
	// few is the memory of most versions.
	few [2]uint64
	// before is the object as events showed it last; nil if none did.
	before *object.Object
	// listed says that a list was asked for after the write, which will show it or what came after it.
	listed bool
	// gone is the UID of an object that is not shown any more, as a deletion was answered, and deleted the version in which it was deleted. Then
	// there are no versions.
	gone    types.UID
	deleted uint64
}

func (a *ahead) last() uint64 { return a.versions[len(a.versions)-1] }

// Gone takes over that an object is gone, as the response to its deletion says, before the event of that comes, and calls the handlers, as
// [Informer.Wrote] does. It is given the object in the version that was deleted. It reports whether the informer has shown the object until now.
// A later version of the object, or another one of its name, is shown again: then the API server was wrong, or somebody created it.
func (i *Informer) Gone(o *object.Object) (taken bool) {
	version, ok := number(o.ResourceVersion())
	if !ok || !i.HasSynced() {
		return false
	}
	i.deliver.Lock()
	defer i.deliver.Unlock()
	seen, ok := number(i.LastSyncedVersion())
	k := key{o.Namespace(), o.Name()}
	before, there := i.store.get(k)
	if !ok || seen < i.former || !there || before.UID() != o.UID() {
		return false
	}
	if shown, ok := number(before.ResourceVersion()); !ok || shown > version {
		return false
	}
	// The key and the UID share the memory of the object's JSON, which would stay.
	k = key{strings.Clone(k.namespace), strings.Clone(k.name)}
	i.ahead[k] = &ahead{gone: types.UID(strings.Clone(string(o.UID()))), deleted: version}
	i.store.remove(k)
	i.notify(Event{Type: Deleted, Old: before})
	return true
}

// outlived handles an event of an object whose deletion was taken over before the event of that. It reports whether the event changes nothing that is
// shown, and has been delivered. It is called with deliver held.
func (i *Informer) outlived(k key, a *ahead, o *object.Object, deleted bool) bool {
	version, ok := number(o.ResourceVersion())
	before := ok && version <= a.deleted // It may be of an earlier object of the name, too.
	event := Event{}
	switch {
	case deleted && (before || o.UID() == a.gone):
		if event = (Event{Type: Deleted, Old: o}); o.UID() == a.gone {
			delete(i.ahead, k)
		}
	case !before:
		if !deleted {
			delete(i.ahead, k)
		}
		return false
	}
	i.progressed(o.ResourceVersion(), event)
	return true
}

// Wrote takes over an object as the response to a write had it, before the event of that write comes, and calls the handlers, on the
// caller's goroutine. It reports whether the informer shows the object now, or a later state of it; if not, the event is to be waited for.
// What handlers must not do in their calls the caller must not do either, nor hold what they wait for.
//
// The order of events stays that of resourceVersions: a write whose event, or a later one of whatever object, has been seen changes nothing,
// and an event from before the write changes nothing that is shown. Handlers are called with it all the same, and with the write
// afterwards, so that nothing that another client did is passed over. Objects whose versions are no numbers are not taken over, and
// none is before the first list, nor after one that has gone back, until what was reached before it is reached again: until then two writes
// may have the same version, one of before etcd was restored and one of afterwards.
func (i *Informer) Wrote(o *object.Object) (shown bool) {
	version, ok := number(o.ResourceVersion())
	if !ok || !i.wants(o) || !i.HasSynced() {
		return false
	}
	i.deliver.Lock()
	defer i.deliver.Unlock()
	seen, ok := number(i.LastSyncedVersion())
	switch {
	case !ok:
		return false
	case seen >= version:
		return true
	case seen < i.former:
		return false
	}
	k := key{o.Namespace(), o.Name()}
	a, taken := i.ahead[k]
	if taken && a.gone != "" {
		if version <= a.deleted {
			return true // The response to the deletion came before that of this write, or of one of an earlier object of the name.
		}
		taken = false
	}
	if taken && a.last() >= version {
		a.versions = insert(a.versions, version)
		return true
	}
	before, _ := i.store.get(k)
	if !taken {
		a = &ahead{before: before}
		a.versions = a.few[:0]
		i.ahead[k] = a
	}
	a.versions, a.listed = insert(a.versions, version), false
	i.show(o, "", false)
	return true
}

// wants reports whether objects like o are what the informer has, in the same form.
func (i *Informer) wants(o *object.Object) bool {
	q := i.query
	if q.MetadataOnly || i.cache.parsing.KeepManagedFields || o.APIVersion() != q.Resource.GroupVersion().String() ||
		q.Namespace != "" && q.Namespace != o.Namespace() || q.Name != "" && q.Name != o.Name() {
		return false
	}
	if q.LabelSelector == "" {
		return true
	}
	selector, err := labels.Parse(q.LabelSelector)
	return err == nil && selector.Matches(o.LabelSet())
}

// The functions below are called with deliver held.

// overtaken handles an event of an object of which the store shows a later state already, or a later object of that name, and reports whether
// it was one.
func (i *Informer) overtaken(o *object.Object, deleted bool) bool {
	k := key{o.Namespace(), o.Name()}
	a, ok := i.ahead[k]
	if !ok {
		return false
	}
	if a.gone != "" {
		return i.outlived(k, a, o, deleted)
	}
	present, _ := i.store.get(k)
	version, ok := number(o.ResourceVersion())
	// Nothing of an object is later than its deletion, whatever version an API server gives that.
	if !ok || version > a.last() || deleted && present != nil && present.UID() == o.UID() {
		delete(i.ahead, k)
		return false
	}
	if deleted {
		i.interject(k, a, version, nil)
	} else {
		i.interject(k, a, version, o)
	}
	i.changed(o.ResourceVersion(), Event{})
	return true
}

// interject calls the handlers with a state of an object from before the one that the store shows, nil if it was deleted. What the
// informer has seen now includes version.
func (i *Informer) interject(k key, a *ahead, version uint64, o *object.Object) {
	own := slices.Contains(a.versions, version)
	if a.versions = slices.DeleteFunc(a.versions, func(v uint64) bool { return v <= version }); len(a.versions) == 0 {
		delete(i.ahead, k)
	}
	before := a.before
	a.before = o
	present, _ := i.store.get(k)
	switch {
	case own || o == nil || present == nil || o.UID() != present.UID():
		return
	case before == nil || before.UID() != o.UID():
	case before.ResourceVersion() == o.ResourceVersion():
		return
	default:
		i.changed("", Event{Type: Updated, Old: before, New: o})
	}
	i.changed("", Event{Type: Updated, Old: o, New: present})
}

// passed forgets writes whose events are not going to come, since later ones have.
func (i *Informer) passed(version string) {
	seen, ok := number(version)
	for k, a := range i.ahead {
		if ok && a.gone == "" && a.last() <= seen {
			delete(i.ahead, k)
		}
	}
}

// keeps reports whether the store goes on to show what a write made, although a list of a version has an earlier state, or nil: the write
// was made after the list.
func (i *Informer) keeps(k key, list string, o *object.Object) bool {
	a, ok := i.ahead[k]
	if !ok {
		return false
	}
	if a.gone != "" {
		return i.hides(k, a, o)
	}
	version, ok := number(list)
	if !ok || a.listed || a.last() <= version {
		delete(i.ahead, k)
		return false
	}
	if o != nil {
		// No event of it is going to come.
		if at, ok := number(o.ResourceVersion()); ok {
			i.interject(k, a, at, o)
		}
	}
	return true
}

// hides reports whether a list shows an object whose deletion was taken over, or an earlier one of its name, because the list was asked for before that.
func (i *Informer) hides(k key, a *ahead, o *object.Object) bool {
	if o != nil && !a.listed {
		if version, ok := number(o.ResourceVersion()); ok && version <= a.deleted {
			return true
		}
	}
	delete(i.ahead, k)
	return false
}

// unlistedAreGone forgets the deletions that were taken over of objects that a list does not have: their events are from before it.
func (i *Informer) unlistedAreGone(listed map[key]struct{}, version string) {
	at, ok := number(version)
	for k, a := range i.ahead {
		if _, there := listed[k]; a.gone != "" && !there && (!ok || a.listed || a.deleted <= at) {
			delete(i.ahead, k)
		}
	}
}

// listing notes that a list is asked for that will show everything that was written before.
func (i *Informer) listing() {
	i.deliver.Lock()
	defer i.deliver.Unlock()
	for _, a := range i.ahead {
		a.listed = true
	}
}

// relisted takes the version of a list for what the informer has reached, whatever it was before.
func (i *Informer) relisted(version string) {
	if before := i.LastSyncedVersion(); older(version, before) {
		reached, _ := number(before)
		i.former = max(i.former, reached)
	}
	i.reach(version)
}

// older reports whether both versions are numbers, and the first one is the lesser.
func older(a, b string) bool {
	first, ok := number(a)
	second, okay := number(b)
	return ok && okay && first < second
}

// number returns a version as a number, if it is one.
func number(version string) (uint64, bool) {
	n, err := strconv.ParseUint(version, 10, 64)
	return n, err == nil
}

// insert adds a version to those in ascending order.
func insert(versions []uint64, version uint64) []uint64 {
	at, there := slices.BinarySearch(versions, version)
	if there {
		return versions
	}
	return slices.Insert(versions, at, version)
}
