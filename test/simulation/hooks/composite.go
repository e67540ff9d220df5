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

package hooks

import (
	"strings"
)

const (
	// Patient is the annotation of composites that ask for a resync in the far future when nothing is missing.
	Patient = Group + "/patient"
	// never is how they say it.
	never = 9999999999
)

// compose is the sync and finalize hook of composites.
func compose(r *Request) *Response {
	wish, name := WishOf(r.Parent), Meta(r.Controller, "name")
	wish.InTurn = wish.InTurn && !r.Finalizing // The finalize hook has an order of its own.
	step := int64(0)
	// Without events of its status nobody would tell the hook that it can go on.
	wish.Memory = wish.Memory && !flag(within(r.Controller, "spec", "parentResource"), "ignoreStatusChanges")
	if wish.Memory {
		step = min(number(within(r.Parent, "status"), "step")+1, wish.Level)
	}
	children := wanted(r, wish, step, rules(r.Controller, "childResources"))
	observed := observedOnce(r)
	response := &Response{Children: children}
	if r.Finalizing {
		finalize(r, response, wish, len(observed))
	}
	ready, extras := int64(0), int64(0)
	for _, o := range observed {
		if text(within(o, "spec"), "extra") != "" {
			extras++
		}
		if (WishOf(o).Color == wish.Color || text(o, "kind") == Kinds[Deployment].Name && RolledOut(o)) && !Deleting(o) {
			ready++
		}
	}
	response.Status = map[string]any{
		"by": name, "color": wish.Color, "observed": int64(len(observed)), "ready": ready, "extras": extras, "related": relatedText(r),
	}
	if wish.Memory {
		response.Status["step"] = step
	}
	if wish.has(WithParts) {
		response.Status["note"] = "level " + itoa(wish.Level)
	}
	if wish.has(WithResync) && len(observed) < len(children) {
		response.ResyncAfterSeconds = 150.5
	} else if text(within(r.Controller, "metadata", "annotations"), Patient) != "" {
		response.ResyncAfterSeconds = never
	}
	return response
}

// finalize takes the children away in one, two or several calls.
func finalize(r *Request, response *Response, wish Wish, observed int) {
	switch {
	case wish.has(FinalizeAtOnce):
		response.keep(0)
		response.Finalized = true
	case wish.has(FinalizeOneByOne) && observed > 1:
		names := map[string]bool{}
		for i, o := range observedOnce(r) {
			if i < observed-1 {
				names[Meta(o, "name")] = true
			}
		}
		response.retain(names)
	default:
		response.keep(0)
		response.Finalized = observed == 0
	}
}

func (r *Response) keep(n int) {
	r.Children = r.Children[:min(n, len(r.Children))]
	r.Attachments = r.Attachments[:min(n, len(r.Attachments))]
}

// retain keeps the desired children of some names.
func (r *Response) retain(names map[string]bool) {
	filter := func(list []map[string]any) []map[string]any {
		var kept []map[string]any
		for _, o := range list {
			if names[Meta(o, "name")] {
				kept = append(kept, o)
			}
		}
		return kept
	}
	r.Children, r.Attachments = filter(r.Children), filter(r.Attachments)
}

// observedOnce returns the observed children, each once: rules may name a kind in two versions.
func observedOnce(r *Request) []map[string]any {
	var once []map[string]any
	seen := map[string]bool{}
	for _, o := range r.Children.All() {
		if uid := Meta(o, "uid"); !seen[uid] {
			seen[uid] = true
			once = append(once, o)
		}
	}
	return once
}

// relatedText says what is related, so that each change of it shows.
func relatedText(r *Request) string {
	var b strings.Builder
	for _, o := range r.Related.All() {
		b.WriteString(Meta(o, "name") + "=" + WishOf(o).Color + ";")
	}
	return b.String()
}
