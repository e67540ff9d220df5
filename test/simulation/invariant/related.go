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
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// relatedAtRest checks that the last request shows the objects that the last customize response selects, as they are.
func (t *Tracker) relatedAtRest(c Cluster, call *Call, d, o object) *Violation {
	asked := t.customized[syncing{c.Engine, call.Controller, o.meta("uid")}]
	if d.at("spec", "hooks", "customize") == nil || asked == nil || asked.Response == nil || !asked.Pure {
		return nil
	}
	shown := map[string]object{}
	for _, each := range call.Request.Related.All() {
		shown[hooks.Meta(each, "uid")] = each
	}
	for _, each := range t.Objects(hooks.ConfigMap) {
		related := object(each)
		uid := related.meta("uid")
		if !slices.ContainsFunc(asked.Response.RelatedResources, func(r hook.RelatedResourceRule) bool { return selectsRelated(d, o, related, r) }) {
			continue
		}
		if shown[uid] == nil || shown[uid].version() != related.version() {
			return New(LatestSeen, c.At, "the hook of %s saw %s, which is related to %s, in version %d last, and it is in version %d",
				call.Controller, related, o, shown[uid].version(), related.version())
		}
		delete(shown, uid)
	}
	for _, related := range shown {
		return New(LatestSeen, c.At, "the hook of %s saw %s last, which is not related to %s any more", call.Controller, related, o)
	}
	return nil
}

// selectsRelated reports whether a rule selects a ConfigMap for a parent (docs/reference/contract.md#s16.2).
func selectsRelated(d, o, related object, r hook.RelatedResourceRule) bool {
	namespace := r.Namespace
	if own := o.meta("namespace"); own != "" && d.at("spec", "hooks", "customize")["version"] == "v1" {
		namespace = own
	}
	if namespace != "" && related.meta("namespace") != namespace || len(r.Names) > 0 && !slices.Contains(r.Names, related.meta("name")) {
		return false
	}
	if r.LabelSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(r.LabelSelector)
	if err != nil {
		return false
	}
	has := labels.Set{}
	for name, value := range related.at("metadata", "labels") {
		has[name] = text(value)
	}
	return selector.Matches(has)
}

// adoptedAtRest checks that no object of a declared kind is left alone that the parent of a composite selects.
func (t *Tracker) adoptedAtRest(c Cluster, d, o object) *Violation {
	if text(d["kind"]) != "CompositeController" || o.deleting() {
		return nil
	}
	for _, rule := range hooks.Rules(d) {
		if !c.serves(rule.Kind, rule.Version) {
			continue
		}
		for _, each := range t.Objects(rule.Kind) {
			orphan := object(each)
			if _, owned := orphan.controller(); owned || orphan.deleting() || o.meta("namespace") != "" && orphan.meta("namespace") != o.meta("namespace") {
				continue
			}
			if (d.at("spec")["generateSelector"] == true || len(o.at("spec", "selector", "matchLabels")) > 0) && selects(d, o, orphan) {
				return New(ChildrenAsWanted, c.At, "%s has no controller, and %s, which selects it, has not adopted it", orphan, o)
			}
		}
	}
	return nil
}

// upgradedAtRest checks the children of a parent whose hook was asked last before the definition of a kind was changed: what is to be
// written otherwise since then is written without anybody asking for it.
func (t *Tracker) upgradedAtRest(c Cluster, name string, rule, o object) *Violation {
	key := syncing{c.Engine, name, o.meta("uid")}
	calls := t.lastSync(key)
	if len(calls) == 0 {
		return nil
	}
	call := calls[0]
	if !t.usable(key) || call.At > t.upgraded || !selected(rule, o) || o.deleting() || t.reported(call, o) {
		return nil
	}
	return t.childrenAsWanted(c, name, call, o)
}

// Upgraded checks, before anybody asks again, that a change of the definition of a kind has had its effect on children.
func (t *Tracker) Upgraded(c Cluster) *Violation {
	for name := range t.definitions {
		d := t.definition(name)
		if d == nil || d.deleting() || pauses(d) {
			continue
		}
		for _, rule := range c.runs(d) {
			group, _ := split(text(rule["apiVersion"]))
			for _, o := range t.Objects(hooks.ByResource(group, text(rule["resource"]))) {
				if v := t.upgradedAtRest(c, name, rule, o); v != nil && t.reports(v) {
					return v
				}
			}
		}
	}
	return nil
}
