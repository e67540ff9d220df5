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
)

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
	marks := within(r.Controller, "metadata", "annotations")
	if text(marks, MayStatus) != "" && text(r.Parent, "kind") == Kinds[Gadget].Name {
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
	response.Delete = wish.Expired && text(marks, MayDelete) != "" && !r.Finalizing
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

// relatedKind selects objects of a custom kind, which may not be served, or not in this version. It does so by their names: children have others.
func relatedKind(wish Wish) hook.RelatedResourceRule {
	rules := []struct {
		kind    int
		version string
	}{{Gadget, "v1"}, {Gadget, "v2"}, {Thing, "v1"}, {Realm, "v1"}}
	rule := rules[int(wish.Level)%len(rules)]
	kind := Kinds[rule.kind]
	return hook.RelatedResourceRule{
		APIVersion: kind.APIVersion(rule.version), Resource: kind.Resource, Names: []string{kind.Letter + "0", kind.Letter + "1"},
	}
}
