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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
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
	wish.Memory = wish.Memory && !value.Bool(r.Controller, "spec", "parentResource", "ignoreStatusChanges")
	if wish.Memory {
		step = min(value.Int(r.Parent, "status", "step")+1, wish.Level)
	}
	children := wanted(r, wish, step, rules(r.Controller, "childResources"))
	observed := observedOnce(r)
	response := &Response{Children: children}
	if r.Finalizing {
		finalize(r, response, wish, len(observed))
	}
	ready, extras := int64(0), int64(0)
	for _, o := range observed {
		if value.String(o, "spec", "extra") != "" {
			extras++
		}
		if (WishOf(o).Color == wish.Color || value.String(o, "kind") == Kinds[Deployment].Name && RolledOut(o)) && !Deleting(o) {
			ready++
		}
	}
	response.Status = map[string]any{
		"by": name, "color": wish.Color, "observed": int64(len(observed)), "ready": ready, "extras": extras, "related": relatedText(r),
	}
	if wish.Memory {
		response.Status["step"] = step
	}
	if wish.has(WithParts) && (!inlined(r) || value.String(r.Parent, "kind") != Kinds[Realm].Name) {
		response.Status["note"] = "level " + itoa(wish.Level)
	}
	if wish.has(WithResync) && len(observed) < len(children) {
		response.ResyncAfterSeconds = 150.5
	} else if value.String(r.Controller, "metadata", "annotations", Patient) != "" {
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

const (
	// MayStatus is the annotation of decorators that write the status of Gadgets: one at most, since a status has one writer.
	MayStatus = Group + "/status"
	// MayDelete is the annotation of decorators that delete what has expired.
	MayDelete = Group + "/delete"
	// Pick is the label of objects that customize hooks select.
	Pick = Group + "/pick"
)

// maxDepth is the number of decorators in the name of an object from which on it gets no attachments: attachments of attachments
// would never end.
const maxDepth = 1

// many is the number of children from which on a decorator makes as many attachments.
const many = 30

// decorate is the sync and finalize hook of decorators.
func decorate(r *Request) *Response {
	wish, name := WishOf(r.Parent), Meta(r.Controller, "name")
	response := &Response{Annotations: map[string]*string{}, Labels: map[string]*string{}}
	label, annotation := "by-"+name, Group+"/"+name
	if wish.Color == "red" || r.Finalizing {
		response.Labels[label] = nil
	} else {
		response.Labels[label] = &wish.Color
	}
	if wish.has(WithLabels) && !r.Finalizing {
		level := itoa(wish.Level)
		response.Annotations[annotation] = &level
	} else {
		response.Annotations[annotation] = nil
	}
	marks := value.Map(r.Controller, "metadata", "annotations")
	if value.String(marks, MayStatus) != "" && !inlined(r) && value.String(r.Parent, "kind") == Kinds[Gadget].Name {
		response.Status = map[string]any{"phase": wish.Color, "by": name, "attached": int64(len(observedOnce(r)))}
	}
	if strings.Count(Meta(r.Parent, "name"), "-d") < maxDepth {
		if wish.Children < many {
			wish.Children = 1 + wish.Children%2
		}
		response.Attachments = wanted(r, wish, 0, rules(r.Controller, "attachments"))
	}
	if r.Finalizing {
		finalize(r, response, wish, len(observedOnce(r)))
	}
	response.Delete = wish.Expired && value.String(marks, MayDelete) != "" && !r.Finalizing
	return response
}

// customize is the customize hook of either kind of controller.
func customize(r *Request) *Response {
	rule := hook.RelatedResourceRule{APIVersion: "v1", Resource: "configmaps"}
	wish := WishOf(r.Parent)
	switch wish.Related {
	case "labels":
		rule.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{Pick: wish.Color}}
	case "names":
		rule.Names = []string{"related-0", "related-" + itoa(1+wish.Level%3)}
		if Meta(r.Parent, "namespace") == "" {
			rule.Namespace = Namespaces[0]
		}
	case Kinded:
		rule.Names = []string{"related-0", "related-1"}
		return &Response{RelatedResources: []hook.RelatedResourceRule{rule, relatedKind(wish)}}
	case "namespace":
		rule.Namespace = Meta(r.Parent, "namespace")
		if rule.Namespace == "" {
			rule.Namespace = Namespaces[1]
		}
		rule.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: Pick, Operator: metav1.LabelSelectorOpExists},
		}}
	default:
		return &Response{}
	}
	return &Response{RelatedResources: []hook.RelatedResourceRule{rule}}
}

// relatedKinds are what relatedKind selects of.
var relatedKinds = []Rule{{Kind: Gadget, Version: "v1"}, {Kind: Gadget, Version: "v2"}, {Kind: Thing, Version: "v1"}, {Kind: Realm, Version: "v1"}}

// relatedKind selects objects of a custom kind, which may not be served, or not in this version. It does so by their names: children have others.
func relatedKind(wish Wish) hook.RelatedResourceRule {
	rule := relatedKinds[int(wish.Level)%len(relatedKinds)]
	kind := Kinds[rule.Kind]
	return hook.RelatedResourceRule{
		APIVersion: kind.APIVersion(rule.Version), Resource: kind.Resource, Names: []string{kind.Letter + "0", kind.Letter + "1"},
	}
}
