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

package history

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Draws counts what was drawn: what it is about, and which variant of it.
type Draws map[string]map[string]int

// What draws are about.
const (
	ofChildren       = "children"
	ofRelated        = "related objects"
	ofConfigurations = "webhook configurations and policies"
	// ofConfigurationsAtRest are those of which it is checked what the engine does about them.
	ofConfigurationsAtRest = "webhook configurations and policies at rest"
	ofPauses               = "ends of pauses"
	ofTurns                = "one after the other"
)

// drew counts a draw. It is one of the history's own.
func (r *runner) drew(what string, variant any) {
	if r.step == none {
		return
	}
	if r.result.Draws == nil {
		r.result.Draws = Draws{}
	}
	r.result.Draws.add(what, fmt.Sprint(variant), 1)
}

func (d Draws) add(what, variant string, n int) {
	if d[what] == nil {
		d[what] = map[string]int{}
	}
	d[what][variant] += n
}

// Merge adds the counts of others.
func (d Draws) Merge(others Draws) {
	for what, variants := range others {
		for variant, n := range variants {
			d.add(what, variant, n)
		}
	}
}

// Table says how many of each variant there were, numbers in their order.
func (d Draws) Table() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(d)) {
		variants := slices.SortedFunc(maps.Keys(d[what]), func(x, y string) int {
			m, first := strconv.Atoi(x)
			n, second := strconv.Atoi(y)
			if first == nil && second == nil {
				return m - n
			}
			return strings.Compare(x, y)
		})
		for i, variant := range variants {
			variants[i] = fmt.Sprintf("%s: %d", variant, d[what][variant])
		}
		fmt.Fprintf(&b, "%s: %s\n", what, strings.Join(variants, ", "))
	}
	return b.String()
}

// Of so many histories, manyOnes have one of the numbers of children in many, and as many one of related objects.
const (
	drawn        = 400
	mostOnes     = 3
	manyOnes     = 16
	admittedOnes = drawn / 10
	restlessOnes = drawn / 10
)

// drawing returns the options with what only some histories draw, by a source of its own: the others are as without it.
func (o Options) drawing(seed uint64) Options {
	r := rand.New(rand.NewPCG(seed, 0xd7a3))
	many := func() int {
		switch n := r.IntN(drawn); {
		case n < mostOnes:
			return 150
		case n < manyOnes:
			return 30
		}
		return 0
	}
	o.Many, o.Related = many(), many()
	o.Admission = r.IntN(drawn) < admittedOnes
	o.Restless = r.IntN(drawn) < restlessOnes
	return o
}
