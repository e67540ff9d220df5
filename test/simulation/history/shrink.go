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
	"slices"
)

// Shrink returns a shorter history that holds, too: it leaves out steps, in chunks first and one by one then, and makes
// what is left smaller.
func Shrink(h History, holds func(History) bool) History {
	for {
		before := len(h.Steps)
		for size := max(1, len(h.Steps)/2); size >= 1; size /= 2 {
			h = without(h, size, holds)
		}
		if len(h.Steps) == before {
			return simplify(h, holds)
		}
	}
}

// without leaves out chunks of some size as long as a history holds.
func without(h History, size int, holds func(History) bool) History {
	for at := 0; at < len(h.Steps); {
		candidate := h
		candidate.Steps = slices.Delete(slices.Clone(h.Steps), at, min(at+size, len(h.Steps)))
		if holds(candidate) {
			h = candidate
		} else {
			at += size
		}
	}
	return h
}

// simplify makes the numbers of steps smaller, and options simpler.
func simplify(h History, holds func(History) bool) History {
	for i := range h.Steps {
		for _, change := range []func(*Step){
			func(s *Step) { s.Do, s.Count, s.How = Rest, 0, "" },
			func(s *Step) { s.Count = 1 },
			func(s *Step) { s.Count /= 2 },
			func(s *Step) { s.Millis /= 10 },
			func(s *Step) { s.On = 0 },
		} {
			candidate := h
			candidate.Steps = slices.Clone(h.Steps)
			change(&candidate.Steps[i])
			scheduler := h.Steps[i].Do == RunOn || h.Steps[i].Do == Pass
			if candidate.Steps[i].Do == Rest && !scheduler || candidate.Steps[i] == h.Steps[i] {
				continue
			}
			if holds(candidate) {
				h = candidate
			}
		}
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Chain = false },
		func(o *Options) { o.ServerSide = false },
		func(o *Options) { o.Patient = false },
		func(o *Options) { o.Workloads = false },
		func(o *Options) { o.RelatedKinds = false },
		func(o *Options) { o.Many = 0 },
		func(o *Options) { o.Many = min(o.Many, 30) },
		func(o *Options) { o.Related = 0 },
		func(o *Options) { o.Admission = false },
		func(o *Options) { o.Restless = false },
	} {
		candidate := h
		change(&candidate.Options)
		if candidate.Options != h.Options && holds(candidate) {
			h = candidate
		}
	}
	return h
}
