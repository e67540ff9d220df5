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
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// doubts reports whether the child needs a trial before anything is done with it.
func (c *child) doubts(f findings) bool {
	switch {
	case c.rule.Method == v1alpha1.ChildUpdateOnDelete, c.paused():
		return false
	case f.migrate:
		// The API server says what our manager will own.
		return true
	case recreates(c.rule.Method) && len(f.values) > 0 && c.rule.ServerSide && !c.rule.Force && !c.in.Comparing:
		// A child is not deleted for what others own.
		return true
	case recreates(c.rule.Method):
		// One real change recreates it whatever the others are.
		return c.inDoubt(f.values)
	}
	return slices.ContainsFunc(f.all(), c.doubtful)
}

// doubtful reports whether a difference may be the API server's doing: what is desired there was applied before, as far as that is
// known. Where the child is known to have held another desired state in this version, only the places at which the API server
// returned something else are in doubt; the others differ because the hook changed what it wants.
func (c *child) doubtful(d merge.Difference) bool {
	switch {
	case c.current():
		return false
	case c.known.Held(c.step.Observed.ResourceVersion()) && c.known.Desired != c.step.desired:
		return c.returned()[HashText(d.Path)] != nil
	}
	return d.Applied || c.fresh || c.owned || c.rule.ServerSide
}

// sentBefore reports whether it is known that what is desired at a difference was sent before, and stored as it is now. Without a record
// server-side apply shows what is owned and not what was sent, so that it is known of nothing.
func (c *child) sentBefore(d merge.Difference) bool {
	switch {
	case c.known.Held(c.step.Observed.ResourceVersion()) && c.known.Desired != c.step.desired:
		pair := pairOf(d)
		return c.returned()[pair.Path].Has(pair.Sent)
	case c.known != nil && c.known.Desired == c.step.desired && c.known.LearntAt != 0:
		return true
	}
	return c.fresh || d.Applied && !c.rule.ServerSide
}

// returned returns where the API server is known to return something else for the child than it was sent, and what was sent there.
func (c *child) returned() map[Hash]sets.Set[Hash] {
	if c.places == nil {
		c.places = map[Hash]sets.Set[Hash]{}
		for _, pair := range c.known.Returned() {
			if c.places[pair.Path] == nil {
				c.places[pair.Path] = sets.Set[Hash]{}
			}
			c.places[pair.Path].Insert(pair.Sent)
		}
	}
	return c.places
}

// inDoubt reports whether there are differences, and all of them may be the API server's doing. Where it is not recorded what was
// applied, all may be.
func (c *child) inDoubt(values []merge.Difference) bool {
	if !c.recorded && !c.rule.ServerSide && !c.current() && !c.known.Held(c.step.Observed.ResourceVersion()) {
		return len(values) > 0
	}
	return len(values) > 0 && !slices.ContainsFunc(values, func(d merge.Difference) bool { return !c.doubtful(d) })
}

// untriedRetry is after how long a child is tried again that could not be tried. No event says that it can be.
const untriedRetry = 10 * time.Minute

// waits returns until when the child is not to be tried because it could not be, lately.
func (c *child) waits() (until time.Time, waits bool) {
	return c.known.Waits(c.step.untried(), c.in.Now)
}

// untried is what is remembered of the step's child if it cannot be tried.
func (s Step) untried() Postponed {
	return Postponed{Desired: s.desired, Version: s.Observed.ResourceVersion(), Epoch: s.epoch, Until: s.PausedUntil}
}

// trial returns what came of the dry run for the present desired state, the zero Trial if there was none.
func (c *child) trial() Trial {
	if t := c.in.Trials[c.step.Key]; t.Desired == c.step.desired {
		return t
	}
	return Trial{}
}

// resolve returns the findings that are left when it is known what the API server would make of the child. It sets the reason of
// the step if the child has to be left as it is.
func (c *child) resolve(f findings) (findings, error) {
	t := c.trial()
	switch {
	case t.Err != nil:
		return f, fmt.Errorf("trying whether a write would change it: %w", t.Err)
	case t.Stale:
		c.step.Reason, c.step.Cause = Stale, t.Cause
		return f, nil
	}
	returned, err := c.returnedBy(t, f)
	if err != nil {
		return f, err
	}
	if c.step.tried = t.updated(); c.step.tried {
		returned = append(returned, c.remembered()...)
		if f, err = c.compare(returned); err != nil {
			return f, err
		}
	}
	recreated, refused := recreates(c.rule.Method), c.refusedInDoubt(t, f)
	unsure := len(refused) > 0
	if recreated {
		unsure = c.inDoubt(f.values)
	}
	if !unsure || c.movesFirst(f) {
		return f, nil
	}
	switch {
	case t.Fresh != nil:
		return c.resolveFresh(f, t.Fresh, returned)
	case !recreated && t.FreshTried:
		for _, d := range refused {
			c.step.Refused = append(c.step.Refused, d.Path)
			returned = append(returned, pairOf(d))
		}
		return c.compare(returned)
	case c.step.tried && t.FreshRefused && len(refused) == 0:
		// An update would put it right.
	default:
		// No child is deleted in doubt.
		c.step.Reason, c.step.Report = Untried, true
		var waits bool
		if c.step.PausedUntil, waits = c.waits(); !waits {
			c.step.PausedUntil = c.in.Now.Add(untriedRetry)
		}
		c.change(f)
	}
	return f, nil
}

// refusedInDoubt returns the values that an update cannot change and of which only a creation tells whether the API server or the hook made
// them differ.
func (c *child) refusedInDoubt(t Trial, f findings) []merge.Difference {
	refused := sets.New(t.Refused...)
	return slices.DeleteFunc(slices.Clone(f.values), func(d merge.Difference) bool {
		return !refused.Has(d.Path) || !c.doubtful(d)
	})
}

// returnedBy returns what the API server would return for an update of the child.
func (c *child) returnedBy(t Trial, f findings) ([]Returned, error) {
	var returned []Returned
	notTried, refused := sets.New(t.Refused...), sets.New[Hash]()
	for i, d := range f.all() {
		if !notTried.Has(d.Path) {
			continue
		}
		pair := pairOf(d)
		refused.Insert(pair.Path)
		if ofValues := i < len(f.values); c.doubtful(d) && (!ofValues || c.sentBefore(d)) {
			// No client can have changed it since, and a new child would get the same value, or be refused.
			returned = append(returned, pair)
		}
	}
	if t.Result == nil {
		return returned, nil
	}
	content, err := t.Result.Decode()
	if err != nil {
		return nil, err
	}
	for _, pair := range c.step.differences(t.Result, content, c.applied()) {
		// What the hook dropped stays in a dry run that was made before the fields belong to our manager.
		if dropped := f.migrate && pair.Sent == 0; !dropped && !refused.Has(pair.Path) {
			returned = append(returned, pair)
		}
	}
	return returned, nil
}

// resolveFresh returns the findings that are left when it is known, too, what the API server would make of a new child.
func (c *child) resolveFresh(f findings, o *object.Object, returned []Returned) (findings, error) {
	content, err := o.Decode()
	if err != nil {
		return f, err
	}
	c.step.tried = true
	fresh := sets.New(c.step.differences(o, content, c.step.shown)...)
	for _, d := range f.values {
		if pair := pairOf(d); fresh.Has(pair) {
			returned = append(returned, pair)
		}
	}
	return c.compare(returned)
}

// movesFirst reports whether nothing but the ownership of fields is to be moved, before the child is looked at again: with those
// of other managers among them it is not known yet what differs.
func (c *child) movesFirst(f findings) bool {
	t := c.trial()
	return f.migrate && recreates(c.rule.Method) && !c.rule.Force && t.Result == nil && t.Whole != nil
}

// freshDoubt returns the doubt whether a child that would be deleted would only come back as it is, or whether the API server makes the
// values of any child what an update cannot change; nil if there is none.
func (c *child) freshDoubt(f findings, t Trial) *Doubt {
	if t.FreshTried {
		return nil
	}
	if _, err := c.resolve(f); err != nil || c.step.Reason != Untried {
		return nil
	}
	return &Doubt{Step: c.step, Desired: c.step.desired, Fresh: true, Read: recreates(c.rule.Method), Body: c.freshBody}
}

// generated is how much longer than a prefix that ends in a hyphen the names are that an API server generates.
const generated = 5

// freshBody returns the body that tries to create the child, under another name, which is not longer if that can be: some kinds allow few
// characters.
func (c *child) freshBody([]string) ([]byte, error) {
	prefix := c.step.Name[:max(1, len(c.step.Name)-generated-1)]
	content := withMetadata(c.content, func(metadata map[string]any) {
		delete(metadata, "name")
		metadata["generateName"] = strings.TrimRight(prefix, "-.") + "-"
	})
	if c.rule.ServerSide {
		return json.Marshal(content)
	}
	return c.in.createBody(content, nil, c.text)
}

// tryBody returns the body of a dry run with the differences at some places.
func (c *child) tryBody(only []string) ([]byte, error) {
	tried := sets.New(only...)
	if c.rule.ServerSide {
		f, err := c.compare(c.remembered())
		if err != nil {
			return nil, err
		}
		content, err := c.applyWith(slices.DeleteFunc(paths(f.all()), tried.Has))
		if err != nil {
			return nil, err
		}
		return c.applyBody(content)
	}
	result, err := merge.Objects(c.observed, observable(c.last), c.step.shown, c.step.schema, func(d merge.Difference) bool {
		return !tried.Has(d.Path)
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(withAnnotation(result, c.text))
}
