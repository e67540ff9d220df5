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
	"fmt"
	"maps"
	"slices"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/record"
)

// doubts reports whether the child needs a trial before anything is done with it.
func (c *child) doubts(f findings) bool {
	switch {
	case leaves(c.rule.Method), c.paused():
		return false
	case f.migrate:
		// The API server says what our manager will own.
		return true
	case recreates(c.rule.Method) && len(f.values) > 0 && c.rule.ServerSide && !c.rule.Force:
		// A child is not deleted for what others own.
		return true
	case c.current():
		return false
	case recreates(c.rule.Method):
		return len(f.values) > 0
	}
	return slices.ContainsFunc(f.all(), c.doubtful)
}

// doubtful reports whether a difference may be the API server's doing: what is desired there was applied before, as far as that is
// known.
func (c *child) doubtful(d merge.Difference) bool {
	return d.Applied || c.fresh || c.owned || c.rule.ServerSide
}

// trial returns what came of the dry run for the present desired state, the zero Trial if there was none.
func (c *child) trial() Trial {
	if t := c.in.Trials[c.step.Key]; t.Desired == c.step.desired {
		return t
	}
	return Trial{}
}

// resolve returns the findings that are left when it is known what the API server would make of the child.
func (c *child) resolve(f findings) (findings, error) {
	t := c.trial()
	switch {
	case t.Err != nil:
		return f, fmt.Errorf("trying whether a write would change it: %w", t.Err)
	case t.Stale:
		c.step.Reason = Stale
		return f, nil
	case t.Result == nil && len(t.Refused) == 0:
		// It cannot be tried: all differences count.
		return f, nil
	}
	var returned []record.Returned
	var refused []record.Hash
	for _, d := range f.all() {
		if !slices.Contains(t.Refused, d.Path) {
			continue
		}
		pair := pairOf(d)
		refused = append(refused, pair.Path)
		if c.doubtful(d) {
			// Nobody can have changed it since, and a new child would get the same value, or be refused.
			returned = append(returned, pair)
		}
	}
	if t.Result != nil {
		content, err := t.Result.Decode()
		if err != nil {
			return f, err
		}
		for _, pair := range c.step.differences(t.Result, content, c.applied()) {
			if !slices.Contains(refused, pair.Path) {
				returned = append(returned, pair)
			}
		}
	}
	c.step.tried = true
	returned = append(returned, c.remembered()...)
	left, err := c.compare(returned)
	if err != nil || t.Fresh == nil {
		return left, err
	}
	content, err := t.Fresh.Decode()
	if err != nil {
		return f, err
	}
	fresh := c.step.differences(t.Fresh, content, c.step.shown)
	for _, d := range left.values {
		if pair := pairOf(d); c.doubtful(d) && slices.Contains(fresh, pair) {
			returned = append(returned, pair)
		}
	}
	return c.compare(returned)
}

// freshDoubt returns the doubt whether a child that would be deleted would only come back as it is; nil if there is none.
func (c *child) freshDoubt(f findings, t Trial) *Doubt {
	if !recreates(c.rule.Method) || c.current() || t.FreshTried || t.Result == nil && len(t.Refused) == 0 {
		return nil
	}
	if f, err := c.resolve(f); err != nil || !slices.ContainsFunc(f.values, c.doubtful) {
		return nil
	}
	return &Doubt{Key: c.step.Key, Desired: c.step.desired, Resource: c.step.Resource, Fresh: true, Body: c.freshBody}
}

// freshBody returns the body that tries to create the child, under another name.
func (c *child) freshBody([]string) ([]byte, error) {
	content := maps.Clone(c.content)
	metadata, _ := content["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	delete(metadata, "name")
	metadata["generateName"] = c.step.Name + "-"
	content["metadata"] = metadata
	if c.rule.ServerSide {
		return encode(content)
	}
	return c.in.createBody(content, nil, c.text)
}

// tryBody returns the body of a dry run with the differences at some places.
func (c *child) tryBody(only []string) ([]byte, error) {
	if c.rule.ServerSide {
		f, err := c.compare(c.remembered())
		if err != nil {
			return nil, err
		}
		content, err := c.applyWith(slices.DeleteFunc(paths(f.all()), func(path string) bool { return slices.Contains(only, path) }))
		if err != nil {
			return nil, err
		}
		return c.applyBody(content)
	}
	result, err := merge.Objects(c.observed, observable(c.last), c.step.shown, c.step.schema, func(d merge.Difference) bool {
		return !slices.Contains(only, d.Path)
	})
	if err != nil {
		return nil, err
	}
	return encode(withAnnotation(result.Object, c.text))
}
