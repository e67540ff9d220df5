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

package plan

import (
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// MaxAge is how long it counts what an API server returned. Admission webhooks change without a change of their configuration.
const MaxAge = 6 * time.Hour

// Hash stands for a value within this process. Zero stands for none.
type Hash uint64

// seed makes hashes of this process differ from those of others, so that nobody can prepare two values with the same one.
var seed = maphash.MakeSeed() //nolint:gochecknoglobals // It does not change, and hashes of all records must be comparable.

// HashOf returns the hash of a decoded JSON value.
func HashOf(value any) Hash {
	// Maps are encoded with sorted keys, so that equal values have equal hashes.
	encoded, err := json.Marshal(value)
	if err != nil {
		// Not reached: what was decoded can be encoded.
		return 1
	}
	return Hash(max(1, maphash.Bytes(seed, encoded)))
}

// HashText returns the hash of texts in their order.
func HashText(texts ...string) Hash {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, text := range texts {
		_, _ = h.WriteString(text)
		_ = h.WriteByte(0)
	}
	return Hash(max(1, h.Sum64()))
}

// FingerprintOf returns the hash of a JSON array of children as a hook wrote it. scope is what else decides about what is desired and may
// change for a parent: the selector, for one.
func FingerprintOf(array []byte, scope string) Hash {
	return max(1, Hash(maphash.Bytes(seed, array))^HashText(scope))
}

// State says why a child needed nothing.
type State uint8

// The states.
const (
	// StateUnknown: it is not known that the child needed nothing.
	StateUnknown State = iota
	// StateSame: the child was as desired.
	StateSame
	// StateOnDelete: the child differed, and its update strategy does not allow to change it.
	StateOnDelete
	// StateDeleted: the controller itself deleted the child.
	StateDeleted
)

// Returned is a place at which the API server returned another value than it was sent.
type Returned struct {
	// Path is the hash of the place.
	Path Hash
	// Sent is the hash of the desired value, zero for none.
	Sent Hash
	// Got is the hash of the value that came back, zero for none.
	Got Hash
}

// A Record is what is remembered of one child. It does not change: a new one takes its place.
type Record struct {
	Key children.Key
	// Desired is the hash of the desired state that the record belongs to. Returned outlives it.
	Desired Hash
	// Version is the resourceVersion at which the child needed nothing, for State; empty if there is none, and for StateDeleted.
	Version string
	// Fingerprint is that of the last response of which Desired was a part, with Siblings children.
	Fingerprint Hash
	// Epoch is that of schema and admission when something was last learnt from the API server, and LearntAt when that was, in
	// seconds since 1970; zero if nothing was.
	Epoch, LearntAt int64
	// More is what few children have; nil if there is nothing of it.
	More     *More
	Siblings int32
	State    State
}

// More is the part of a record that few children need.
type More struct {
	// Returned are the places at which the API server returned something else than it was sent.
	Returned []Returned
	// Breaker counts writes. It is zero for a child that was not written since its desired state changed.
	Breaker Breaker
	// Untried says that the child could not be tried; zero if it could.
	Untried Asked
	// Compared is another desired state, from which the child differs, as far as the API server can say; zero if there is none.
	Compared Asked
}

// Asked is a child about which the API server was asked, and which is not asked again as long as it is the same.
type Asked struct {
	// Desired is the hash of the desired state, Version the resourceVersion, and Epoch that of schema and admission.
	Desired Hash
	Version string
	Epoch   int64
	// Until is when it is asked again, because it had no answer. With zero it had one, for which Epoch does not count.
	Until time.Time
}

// counts reports whether the API server need not be asked about a child that the other fields of now have.
func (a Asked) counts(now Asked, at time.Time) bool {
	if a.Until.IsZero() {
		return a.Version != "" && a.Desired == now.Desired && a.Version == now.Version
	}
	now.Until = a.Until
	return a == now && at.Before(a.Until)
}

// more returns what few records have, which is nothing for nil.
func (r *Record) more() More {
	if r == nil || r.More == nil {
		return More{}
	}
	return *r.More
}

// Returned are the places at which the API server returned something else than it was sent. They must not be changed. A nil
// record has none.
func (r *Record) Returned() []Returned { return r.more().Returned }

// Breaker returns the count of writes.
func (r *Record) Breaker() Breaker { return r.more().Breaker }

// Current reports whether what was learnt from the API server counts, in an epoch and at a time. It does not for nil.
func (r *Record) Current(epoch int64, now time.Time) bool {
	return r != nil && r.LearntAt != 0 && r.Epoch == epoch && now.Sub(time.Unix(r.LearntAt, 0)) < MaxAge
}

// Held reports whether the child was as desired in a version, for the desired state of the record, but for what the API server
// returned. It did not for nil.
func (r *Record) Held(version string) bool {
	return r != nil && r.State == StateSame && r.Version != "" && r.Version == version
}

// NeedsNothing returns the state in which a child needs nothing in a version, for a desired state; StateUnknown if it may need something.
// That ends with no epoch, but with Unsettled.
func (r *Record) NeedsNothing(desired Hash, version string, now time.Time) State {
	if r == nil || r.Desired != desired || r.Version == "" || r.Version != version {
		return StateUnknown
	}
	if r.State == StateSame && len(r.Returned()) > 0 && !r.Current(r.Epoch, now) {
		return StateUnknown
	}
	return r.State
}

// For returns a copy of the record, for a desired state: what belongs to another one is left out. It may be called on nil.
func (r *Record) For(key children.Key, desired Hash) *Record {
	if r == nil {
		return &Record{Key: own(key), Desired: desired}
	}
	next := *r
	if next.Desired != desired {
		next.Desired, next.Version, next.State, next.Fingerprint, next.Siblings = desired, "", StateUnknown, 0, 0
		next.set(r.Returned(), Breaker{})
	}
	return &next
}

// Waits returns until when a child, whose other fields u has, is not to be tried; false if it may be tried.
func (r *Record) Waits(u Asked, now time.Time) (until time.Time, waits bool) {
	known := r.more().Untried
	return known.Until, known.counts(u, now)
}

// NotTried returns the record with a child that could not be tried. It may be called on nil.
func (r *Record) NotTried(key children.Key, u Asked) *Record {
	if r.more().Untried == u {
		return r
	}
	if r == nil {
		r = r.For(key, u.Desired)
	}
	next, more := *r, r.more()
	u.Version = strings.Clone(u.Version) // It may be a part of an object's JSON.
	more.Untried = u
	next.NeededNothing("", StateUnknown)
	next.More = &more
	return &next
}

// DifferedFrom returns the record with a desired state from which the child differs, beside its own. It may be called on nil.
func (r *Record) DifferedFrom(key children.Key, other Asked) *Record {
	if r == nil {
		r = r.For(key, 0)
	}
	next, more := *r, r.more()
	other.Version = strings.Clone(other.Version) // Likewise.
	more.Compared = other
	next.More = &more
	return &next
}

// own returns a key that keeps no object's JSON in memory, of which its texts may be parts.
func own(key children.Key) children.Key {
	return children.Key{
		Group: unique.Make(key.Group).Value(), Kind: unique.Make(key.Kind).Value(), Namespace: unique.Make(key.Namespace).Value(),
		Name: strings.Clone(key.Name),
	}
}

func (r *Record) set(returned []Returned, b Breaker) {
	r.More = nil
	if len(returned) > 0 || b != (Breaker{}) {
		r.More = &More{Returned: returned, Breaker: b}
	}
}

// NeededNothing puts into a new record that its child needed nothing in a version; for StateUnknown, that this is not known of any.
func (r *Record) NeededNothing(version string, state State) {
	if r.Version != version {
		// The version may be a part of an object's JSON.
		r.Version = strings.Clone(version)
	}
	r.State = state
}

// Learnt puts into a new record what the API server returned in place of what it was sent, in an epoch.
func (r *Record) Learnt(returned []Returned, epoch int64, now time.Time) {
	r.Epoch, r.LearntAt = epoch, now.Unix()
	r.set(returned, r.Breaker())
}

// Doubted returns a copy of the record in which it does not count what was learnt from the API server. It may be called on nil.
func (r *Record) Doubted() *Record {
	if r == nil || r.LearntAt == 0 {
		return r
	}
	next := *r
	next.LearntAt = 0
	return &next
}

// Unsettled returns a copy of the record in which the child may need something. What was learnt counts as before.
func (r *Record) Unsettled() *Record {
	next := *r
	next.NeededNothing("", StateUnknown)
	return &next
}

// Counted puts a breaker into a new record.
func (r *Record) Counted(b Breaker) { r.set(r.Returned(), b) }

// Records are the records of the children of one parent, in the order of their keys: most parents have few, and there may be
// many parents. They do not change.
type Records []*Record

// Get returns the record of a child, nil if there is none.
func (r Records) Get(key children.Key) *Record {
	i, ok := r.find(key)
	if !ok {
		return nil
	}
	return r[i]
}

func (r Records) find(key children.Key) (int, bool) {
	return slices.BinarySearchFunc(r, key, func(r *Record, key children.Key) int { return r.Key.Compare(key) })
}

// With returns the records with others, each in place of that of the same child. Those before do not change.
func (r Records) With(others ...*Record) Records {
	if len(others) == 0 {
		return r
	}
	next := slices.Clone(r)
	for _, other := range others {
		if i, ok := r.find(other.Key); ok {
			next[i] = other
		} else {
			next = append(next, other)
		}
	}
	next.sort()
	return next
}

// sort puts new records in the order that Get needs.
func (r Records) sort() {
	slices.SortFunc(r, func(a, b *Record) int { return a.Key.Compare(b.Key) })
}

// Compared returns the records with the desired states from which children were found to differ.
func (r Records) Compared(differing map[children.Key]Asked) Records {
	var others Records
	for key, other := range differing {
		if known := r.Get(key); known == nil || known.Desired != other.Desired { // Else it was written since.
			others = append(others, known.DifferedFrom(key, other))
		}
	}
	return r.With(others...)
}

// The breaker stops a child that was written more than maxWrites times within window without a change of what is desired; the first
// creation does not count, nor does one after a deletion by the controller, which did
// (docs/reference/compatibility.md#d12.4). It is tried again after firstPause, then after pauses that double up to longestPause.
const (
	maxWrites    = 10
	window       = time.Minute
	firstPause   = time.Minute
	longestPause = 10 * time.Minute
	// maxOfKind is how many children of a kind that this process did not make may be deleted within window, and maxPerChild how many more for each child
	// that there is: what makes them again may give them other names each time.
	maxOfKind, maxPerChild = 60, 3
)

// Breaker counts the writes of one child, and pauses them when there are too many.
type Breaker struct {
	writes      int
	windowStart time.Time
	pausedUntil time.Time
	pause       time.Duration
	reported    bool
	// creation says that the last write created a child that somebody else had deleted.
	creation bool
	// most is the most children that there were in the window, for a kind.
	most int32
}

// Paused reports whether nothing is to be written now, and when that ends.
func (b Breaker) Paused(now time.Time) (until time.Time, paused bool) {
	return b.pausedUntil, now.Before(b.pausedUntil)
}

// Reported says whether the present pause was reported.
func (b Breaker) Reported() bool { return b.reported }

// Report returns the breaker with its pause reported.
func (b Breaker) Report() Breaker {
	b.reported = true
	return b
}

// Count returns the breaker after one more write, which may be the creation of a child that somebody else had deleted.
func (b Breaker) Count(creation bool, now time.Time) Breaker {
	b.creation = creation
	return b.count(1, maxWrites, now)
}

// CountOf returns the breaker of a kind after deletions of children, of which there were so many.
func (b Breaker) CountOf(deleted, there int, now time.Time) Breaker {
	if now.Sub(b.windowStart) > window {
		b.most = 0
	}
	b.most = max(b.most, int32(min(there, 1<<20))) //nolint:gosec // It fits.
	return b.count(deleted, maxOfKind+maxPerChild*int(b.most), now)
}

func (b Breaker) count(writes, limit int, now time.Time) Breaker {
	if now.Sub(b.windowStart) > window {
		// There was no write for a while: what follows is another matter.
		b.windowStart, b.writes, b.pause = now, 0, 0
	}
	b.writes += writes
	if b.writes <= limit {
		return b
	}
	b.pause = min(max(2*b.pause, firstPause), longestPause)
	b.pausedUntil = now.Add(b.pause)
	b.writes = limit // one more write after the pause, then the next one
	b.windowStart = b.pausedUntil
	b.reported = false
	return b
}

// Contested reports whether the record is about a child that no response wants, or about a kind: it only counts what others undo. It is false for nil.
// A record that only has what a child was compared with is not: the child may be one of this process.
func (r *Record) Contested() bool { return r != nil && r.Desired == 0 && r.State == StateDeleted }

// counting returns a copy of the record with what others undo counted. It may be called on nil.
func (r *Record) counting(key children.Key, count func(Breaker) Breaker) *Record {
	next := &Record{Key: own(key), State: StateDeleted}
	if r != nil {
		*next = *r
	}
	next.Counted(count(next.Breaker()))
	return next
}

// Over reports whether a record that is Contested counts nothing any more.
func (r *Record) Over(now time.Time) bool { return now.Sub(r.Breaker().windowStart) > window }

// OfKind returns the key under which deletions of children of a kind are counted, whatever they are called.
func OfKind(key children.Key) children.Key {
	key.Namespace, key.Name = "", ""
	return key
}

// Claimed returns the records after children have been adopted or released, and the pauses of others have been reported.
func (r Records) Claimed(claimed, reported []children.Key, now time.Time) Records {
	var others Records
	for _, key := range claimed {
		others = append(others, r.Get(key).counting(key, func(b Breaker) Breaker { return b.Count(false, now) }))
	}
	for _, key := range reported {
		if known := r.Get(key); known != nil {
			others = append(others, known.counting(key, Breaker.Report))
		}
	}
	if len(others) == 0 {
		return r
	}
	return slices.DeleteFunc(r.With(others...), func(known *Record) bool { return known.Contested() && known.Over(now) })
}

// Left returns the first child that is left alone for a while, and for how long: others undo what is done about it, or it could not be tried. It is nil if
// none is.
func (r Records) Left(now time.Time) (left *Record, wait time.Duration) {
	for _, known := range r {
		more := known.more()
		wait = more.Breaker.pausedUntil.Sub(now)
		if known.State == StateUnknown {
			wait = max(wait, more.Untried.Until.Sub(now))
		}
		if wait > 0 {
			return known, wait
		}
	}
	return nil, 0
}

// Settled reports whether a plan for a response that was planned from before would do nothing, because the observed children,
// each given once, are the desired ones and need nothing in the versions in which they are observed. It is false for a response
// without children.
func (r Records) Settled(f Hash, observed []*object.Object, now time.Time) bool {
	if f == 0 || len(observed) == 0 || len(r) < len(observed) {
		return false
	}
	for _, o := range observed {
		known := r.Get(children.KeyOf(o))
		if known == nil || known.Fingerprint != f || int(known.Siblings) != len(observed) || o.Deleting() {
			return false
		}
		if known.NeedsNothing(known.Desired, o.ResourceVersion(), now) == StateUnknown {
			return false
		}
	}
	return true
}

// Outdated returns the children that may need something although they did not change: what is known of what the API server makes of them was
// learnt before the epoch that API servers follow by now, which followed returns for a kind.
func (r Records) Outdated(followed func(schema.GroupKind) int64) (keys []children.Key) {
	for _, known := range r {
		if known.More == nil {
			continue
		}
		u, now := known.More.Untried, followed(known.Key.GroupKind())
		switch {
		case u != (Asked{}) && u.Epoch < now:
			keys = append(keys, known.Key)
		case u != (Asked{}) && u.Desired == known.Desired:
			// It was to be tried in this epoch, and will be again after a while.
		case len(known.More.Returned) > 0 && known.Epoch < now:
			keys = append(keys, known.Key)
		}
	}
	return keys
}

// Unsettled returns the records with those of some children, where there are any, in which these may need something.
func (r Records) Unsettled(keys ...children.Key) Records {
	var others Records
	for _, key := range keys {
		if known := r.Get(key); known != nil {
			others = append(others, known.Unsettled())
		}
	}
	return r.With(others...)
}

// Outcome is what happened to one child.
type Outcome struct {
	Step
	// Written is the child as the API server returned it, after Create and Update that succeeded.
	Written *object.Object
	// Moved is the child after Migration, if Body did not follow: the write of that failed, or the step is stale. Nil if Migration did
	// not change the child.
	Moved *object.Object
	// Gone is the child as it was when a Delete or Recreate deleted it, if the response says that it is gone, and Left the child as that left
	// it, if it is there until its finalizers or its grace period have ended. Nil for neither: the response did not say.
	Gone, Left *object.Object
	// Done says that the step changed the cluster. An Update does not if the API server finds nothing to change.
	Done bool
	// Stale says that the step was made from a state that is past: the child changed, went or came meanwhile. That is no
	// error (docs/reference/contract.md#s11); the change that was overlooked wakes the parent. Cause says
	// what the API server said.
	Stale bool
	// Unknown says that it is not known whether the API server did the step: the response was lost, for one.
	Unknown bool
	// Existing is the object that has the name of a child to be created, and the same parent. The step is stale then, if the object
	// is a child of this controller.
	Existing *object.Object
	// Warnings are what the API server said about the write, beside doing it.
	Warnings []string
}

// Next returns the records of the parent's children after a plan was carried out, for which f is the fingerprint of the response
// that it was made for, zero for none. It changes none of before. Children that the plan does not
// deal with have none, unless they are kept.
func (p Plan) Next(before Records, outcomes []Outcome, f Hash) Records {
	happened := make(map[children.Key]*Outcome, len(outcomes))
	for i := range outcomes {
		happened[outcomes[i].Key] = &outcomes[i]
	}
	var next Records
	desired := len(p.Failed)
	for i := range p.Steps {
		if p.Steps[i].desired != 0 {
			desired++
		}
	}
	for i := range p.Steps {
		step := &p.Steps[i]
		if step.desired == 0 {
			continue
		}
		known := before.Get(step.Key)
		now := p.next(step, known, happened[step.Key])
		if now != nil && f != 0 && now.Desired == step.desired && (now.Fingerprint != f || int(now.Siblings) != desired) {
			if now == known {
				now = known.For(step.Key, step.desired)
			}
			// A child whose write failed may be known in another desired state still: that one is not the response's.
			now.Fingerprint, now.Siblings = f, int32(desired) //nolint:gosec // A response has not that many children.
		}
		if now != nil {
			next = append(next, now)
		}
	}
	for _, key := range slices.Concat(p.Failed, p.Kept) {
		if known := before.Get(key); known != nil && !known.Contested() {
			// It is there still.
			next = append(next, known)
		}
	}
	next = append(next, p.contested(before, next, happened)...)
	next.sort()
	if slices.Equal(next, before) {
		return before
	}
	return next
}

// contested returns the records of children that no response wants and that were deleted although this process did not make them, and of their kinds; and
// those of before that count still. Next has the others.
func (p Plan) contested(before, next Records, happened map[children.Key]*Outcome) Records {
	counted := map[children.Key]*Record{}
	for _, known := range before {
		if known.Contested() && !known.Over(p.Now) {
			counted[known.Key] = known
		}
	}
	if len(counted) == 0 && !slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Action == Delete }) {
		return nil
	}
	count := func(key children.Key, how func(Breaker) Breaker) { counted[key] = counted[key].counting(key, how) }
	there, deleted := map[children.Key]int{}, map[children.Key]int{}
	for _, key := range p.Kept {
		there[OfKind(key)]++
	}
	for i := range p.Steps {
		step := &p.Steps[i]
		kind := OfKind(step.Key)
		there[kind]++
		known, o := before.Get(step.Key), happened[step.Key]
		switch {
		case step.desired != 0 || known != nil && !known.Contested():
		case o != nil && o.Done:
			deleted[kind]++
			count(step.Key, func(b Breaker) Breaker { return b.Count(false, p.Now) })
		case step.HoldsDeletion() && step.Report:
			for _, key := range []children.Key{step.Key, kind} {
				if _, paused := counted[key].Breaker().Paused(p.Now); paused {
					count(key, Breaker.Report)
				}
			}
		}
	}
	for kind, n := range deleted {
		count(kind, func(b Breaker) Breaker { return b.CountOf(n, there[kind], p.Now) })
	}
	for _, known := range next {
		delete(counted, known.Key)
	}
	return slices.Collect(maps.Values(counted))
}

// next returns the record of a child after its step; it may be the known one, or nil.
func (p Plan) next(step *Step, known *Record, o *Outcome) *Record {
	switch {
	case o == nil:
		return p.left(step, known)
	case o.Written != nil && !step.moves:
		next := known.For(step.Key, step.desired)
		next.Learnt(step.learn(o.Written), step.epoch, p.Now)
		if step.Manager == "" && !step.tried && len(step.explained) > 0 {
			// In place of what stays the observed values were sent: nothing new is known of the desired ones.
			next.Epoch, next.LearntAt = known.Epoch, known.LearntAt
		}
		version, reason := o.Written.ResourceVersion(), StateSame
		if step.guesses {
			version, reason = "", StateUnknown
		}
		next.NeededNothing(version, reason)
		if o.Done && (step.Action != Create || known != nil && known.State != StateDeleted) { // Else nobody took it.
			next.Counted(next.Breaker().Count(step.Action == Create, p.Now))
		}
		return next
	case o.Done:
		next := known.For(step.Key, step.desired)
		next.Counted(next.Breaker().Count(false, p.Now))
		if o.Written == nil {
			next.NeededNothing("", StateDeleted)
		}
		return next
	case o.Unknown && (step.Action == Create || step.Action == Update):
		// If it was done, the API server may have made something else of what it was sent.
		return known.Doubted()
	}
	return known
}

// left returns the record of a child that was left as it is.
func (p Plan) left(step *Step, known *Record) *Record {
	switch {
	case step.Action != Leave && step.tried:
		// It was only looked at: what is known now decides about the plan that is carried out.
		next := known.For(step.Key, step.desired)
		next.Learnt(step.explained, step.epoch, p.Now)
		next.NeededNothing("", StateUnknown)
		return next
	case step.Action != Leave:
	case step.Reason == Flapping && step.Report:
		next := known.For(step.Key, step.desired)
		next.Counted(next.Breaker().Report())
		return next
	case step.Reason == Untried:
		return known.NotTried(step.Key, step.untried())
	case step.Reason == OnDelete || step.Reason == Same:
		reason := StateSame
		if step.Reason == OnDelete {
			reason = StateOnDelete
		}
		version := step.Observed.ResourceVersion()
		if known.NeedsNothing(step.desired, version, p.Now) == reason {
			return known
		}
		next := known.For(step.Key, step.desired)
		if reason == StateOnDelete || !step.guesses {
			next.NeededNothing(version, reason)
		}
		if reason == StateSame && (step.tried || !known.Current(step.epoch, p.Now)) {
			next.Learnt(step.explained, step.epoch, p.Now)
		}
		return next
	}
	return known
}
