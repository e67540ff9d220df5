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

package invariant

import (
	"bytes"
	"reflect"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// mark is the annotation that names the decorator of an attachment.
const mark = "metacontroller.k8s.io/decorator-controller"

// changed returns what a write changed: fields, labels and annotations one by one. What the API server maintains is left out.
func changed(before, after object) []string {
	var all []string
	for _, field := range keys(before, after) {
		if field != "metadata" && !reflect.DeepEqual(before[field], after[field]) {
			all = append(all, field)
		}
	}
	was, is := before.at("metadata"), after.at("metadata")
	for _, field := range keys(was, is) {
		switch field {
		case "managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "deletionGracePeriodSeconds":
		case "labels", "annotations":
			a, b := before.at("metadata", field), after.at("metadata", field)
			for _, name := range keys(a, b) {
				if !reflect.DeepEqual(a[name], b[name]) {
					all = append(all, field+"."+name)
				}
			}
		default:
			if !reflect.DeepEqual(was[field], is[field]) {
				all = append(all, field)
			}
		}
	}
	return all
}

func keys(a, b map[string]any) []string {
	var all []string
	for name := range a {
		all = append(all, name)
	}
	for name := range b {
		if _, both := a[name]; !both {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

const (
	ofStatus         = "status"
	targetLabel      = "labels.by-"
	targetAnnotation = "annotations." + hooks.Group + "/"
)

// asTarget reports whether a change is one that controllers make to their parents and targets.
func asTarget(field string) bool {
	return field == ofStatus || field == "finalizers" || strings.HasPrefix(field, targetLabel) || strings.HasPrefix(field, targetAnnotation)
}

// prunes reports whether a write changes the status only as its form is stored, so that what the schema lacks now goes: where statuses
// are written for themselves, other writes change none.
func (c *change) prunes(field string) bool {
	return field == ofStatus && c.Subresource == "" && hooks.Kinds[c.after.kind()].HasStatus
}

// writerOfTarget returns the controller that made a change to its parent or target, "" if that cannot be told.
func writerOfTarget(field string, before, after object) string {
	switch {
	case field == ofStatus:
		return text(after.at("status")["by"])
	case field == "finalizers":
		// Only what was added: the supervisor takes finalizers off, too.
		for _, f := range missing(after.finalizers(), before.finalizers()) {
			if _, name, ok := strings.Cut(f, "controller-"); ok {
				return name
			}
		}
	case strings.HasPrefix(field, targetLabel):
		return strings.TrimPrefix(field, targetLabel)
	case strings.HasPrefix(field, targetAnnotation):
		return strings.TrimPrefix(field, targetAnnotation)
	}
	return ""
}

// finalizing returns the name of the controller whose finalizer it is, "" for one of others.
func finalizing(f string) string {
	_, name, ok := strings.Cut(f, "controller-")
	if !ok || !strings.HasPrefix(f, "metacontroller.io/") {
		return ""
	}
	return name
}

// controllerOf returns the controller to which a child belongs, and the UID of its parent. The name is "" if there is none.
func (t *Tracker) controllerOf(child object) (controller, parent string) {
	by, ok := child.controller()
	if !ok {
		return "", ""
	}
	marked := text(child.at("metadata", "annotations")[mark])
	if marked != "" && !t.claimedByComposite(child, by.uid) {
		return marked, by.uid
	}
	for name, states := range t.definitions {
		for _, s := range slices.Backward(states) {
			if s.object != nil && names(s.object, hooks.ByName(by.group, by.kind)) && text(s.object["kind"]) == compositeKind {
				return name, by.uid
			}
		}
	}
	return marked, by.uid
}

// writerOf returns the one controller that may have written a child, and the UID of its parent. The name is "" if there is none, or if a
// decorator and a composite of the parent both claim the child: then either may have. Of a parent that is gone it is not known what a
// composite of it selected.
func (t *Tracker) writerOf(child object) (controller, parent string) {
	controller, parent = t.controllerOf(child)
	if marked := text(child.at("metadata", "annotations")[mark]); marked != "" && (marked != controller || t.objects[parent] == nil) {
		return "", ""
	}
	return controller, parent
}

// names reports whether a controller names a kind as a kind of its parents, in whatever version.
func names(controller object, kind int) bool {
	return slices.Contains(parentKinds(controller), kind)
}

func parentRules(controller object) []map[string]any {
	if rule := controller.at("spec", "parentResource"); rule != nil {
		return []map[string]any{rule}
	}
	var all []map[string]any
	list, _ := controller.at("spec")["resources"].([]any) // Absent: none.
	for _, each := range list {
		if rule, ok := each.(map[string]any); ok {
			all = append(all, rule)
		}
	}
	return all
}

func parentKinds(controller object) []int {
	var all []int
	for _, rule := range parentRules(controller) {
		all = append(all, kindOf(rule))
	}
	return all
}

// finalizes reports whether a controller has its finalizer on objects of a kind: it has a finalize hook, or children that stay.
func finalizes(controller object, kind int) bool {
	return controller != nil && !controller.deleting() && (controller.at("spec", "hooks", "finalize") != nil || retains(controller, -1)) && names(controller, kind)
}

// retains reports whether children of a kind stay without their parents, or of any kind if that is negative.
func retains(controller object, kind int) bool {
	all := hooks.Rules(controller)
	if kind < 0 {
		return slices.ContainsFunc(all, func(r hooks.Rule) bool { return r.Retain })
	}
	for _, r := range slices.Backward(all) {
		if r.Kind == kind {
			return r.Retain
		}
	}
	return false
}

// taken are the names of stages of a child, and of their notes, that somebody else than its controllers has taken over.
type taken struct {
	uid    string
	stages []string
}

// takeStages follows who owns the stages of a child. Server-side apply takes the list as a whole: whoever changes an element takes over all of
// them. They stay his until the list is applied again, or for each element until a controller says in its annotation that it has applied it.
func (t *Tracker) takeStages(c *change) {
	was, is := appliesStages(c.before), appliesStages(c.after)
	if c.after != nil && was && !is && !c.byEngine {
		t.taken = append(t.taken, taken{c.UID, ownStages(c.after)})
		return
	}
	i := slices.IndexFunc(t.taken, func(each taken) bool { return each.uid == c.UID })
	switch {
	case i < 0:
	case c.after == nil || is:
		t.taken = slices.Delete(t.taken, i, i+1)
	case c.byEngine:
		applied := ownStages(decode([]byte(text(c.after.at("metadata", "annotations")[lastApplied]))))
		t.taken[i].stages = missing(t.taken[i].stages, applied)
	}
}

// stagesTaken returns the names of the stages of a child, and of their notes, that others have taken over.
func (t *Tracker) stagesTaken(child object) []string {
	for _, each := range t.taken {
		if each.uid == child.meta("uid") {
			return each.stages
		}
	}
	return nil
}

// appliesStages reports whether a controller owns the list of stages of a child by server-side apply.
func appliesStages(child object) bool {
	entries, _ := child.at("metadata")["managedFields"].([]any) // Absent: none.
	return slices.ContainsFunc(entries, func(each any) bool {
		entry, _ := each.(map[string]any) // The API server has made it.
		if !applies(entry, "") {
			return false
		}
		if encoded, ok := entry["fieldsV1"].(value.Encoded); ok {
			return bytes.Contains(encoded.JSON(), []byte(`"f:stages"`)) // Not decoded: that is slow, and no other field has this name.
		}
		return object(entry).at("fieldsV1", "f:spec")["f:stages"] != nil
	})
}

// ownStages returns the names of an object's stages that hooks alone give, and of their notes.
func ownStages(o object) []string {
	var all []string
	stages, _ := o.at("spec")["stages"].([]any) // Absent: none.
	for _, each := range stages {
		stage, _ := each.(map[string]any) // The API server has validated it.
		if name := text(stage["name"]); strings.HasPrefix(name, own) {
			all = append(all, name)
			if stage["note"] != nil {
				all = append(all, noteOf(name))
			}
		}
	}
	return all
}

// noteOf names the note of a stage.
func noteOf(stage string) string { return stage + ".note" }
