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
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Rule is a declared kind of children or attachments.
type Rule struct {
	// Kind is an index of Kinds.
	Kind int
	// Version is the version that the rule names.
	Version string
	// Method and Apply are as declared, empty where they are not.
	Method, Apply string
	// Checked says that a rollout waits until an updated child is Available. It is not read from a declaration.
	Checked bool
}

// rules returns the kinds that a controller declares in a field of its spec, each once: the last rule of a kind counts.
func rules(controller map[string]any, field string) []Rule {
	var all []Rule
	declared, _ := within(controller, "spec")[field].([]any) // Absent: none.
	for _, each := range declared {
		m, _ := each.(map[string]any) // The API server has validated it.
		group, version := splitAPIVersion(text(m, "apiVersion"))
		strategy := within(m, "updateStrategy")
		rule := Rule{
			Kind: ByResource(group, text(m, "resource")), Version: version, Method: text(strategy, "method"), Apply: text(strategy, "apply"),
		}
		if rule.Kind >= 0 {
			all = append(all, rule)
		}
	}
	return all
}

// Rules returns the kinds of children or attachments that a controller declares.
func Rules(controller map[string]any) []Rule {
	return append(rules(controller, "childResources"), rules(controller, "attachments")...)
}

func splitAPIVersion(apiVersion string) (group, version string) {
	for i := range len(apiVersion) {
		if apiVersion[i] == '/' {
			return apiVersion[:i], apiVersion[i+1:]
		}
	}
	return "", apiVersion
}

// wanted returns the desired children of all declared kinds, each kind once.
func wanted(r *Request, wish Wish, step int64, rules []Rule) []map[string]any {
	total := wish.Children
	if wish.Ordered {
		total = min(total, int64(len(observedOnce(r)))/max(1, int64(len(rules)))+1)
	}
	var all []map[string]any
	done := map[int]bool{}
	for _, rule := range slices.Backward(rules) {
		if done[rule.Kind] {
			continue
		}
		done[rule.Kind] = true
		for i := range inTurn(r, wish, rule, total) {
			all = append(all, child(r, wish, step, rule, i))
		}
	}
	return all
}

// inTurn returns how many children of a kind are wanted now where they come and go one after the other.
func inTurn(r *Request, wish Wish, rule Rule, total int64) int64 {
	if !wish.InTurn {
		return total
	}
	there, leaving := int64(0), int64(0)
	for _, o := range observedOnce(r) {
		if text(o, "kind") != Kinds[rule.Kind].Name {
			continue
		}
		there++
		if Deleting(o) {
			leaving++
		}
	}
	if there > total && leaving > 0 {
		return there - leaving
	}
	return min(max(total, there-1), there+1)
}

// child returns a desired child.
func child(r *Request, wish Wish, step int64, rule Rule, i int64) map[string]any {
	kind := Kinds[rule.Kind]
	name := Meta(r.Parent, "name") + "-" + Meta(r.Controller, "name") + "-" + kind.Letter + itoa(i)
	meta := map[string]any{"name": name}
	labels := map[string]any{}
	if !r.Decorator { // With these labels a composite would claim attachments as its children.
		maps.Copy(labels, within(r.Parent, "spec", "selector", "matchLabels"))
	}
	if wish.has(WithLabels) {
		labels["own-color"] = wish.Color
		meta["annotations"] = map[string]any{"own-level": itoa(wish.Level)}
	}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if Meta(r.Parent, "namespace") == "" {
		meta["namespace"] = Namespaces[int(i)%len(Namespaces)]
	}
	version := rule.Version
	if other := slices.IndexFunc(kind.Versions, func(v string) bool { return v != version }); other >= 0 && i%2 == 1 && wish.has(InOtherVersion) {
		version = kind.Versions[other]
	}
	o := map[string]any{"apiVersion": kind.APIVersion(version), "kind": kind.Name, "metadata": meta}
	switch rule.Kind {
	case Gadget:
		o["spec"] = gadgetSpec(r, wish, step)
		if wish.has(WithExtra) && !serverSide(r, rule) {
			within(o, "spec")["extra"] = wish.Color
		}
	case Deployment:
		o["spec"] = deploymentSpec(r, wish, step, rule, name)
	default:
		o["data"] = configData(r, wish, step)
	}
	return o
}

// ServerSide is the annotation of controllers whose children are written by server-side apply where their rule does not say.
const ServerSide = Group + "/server-side"

// serverSide reports whether children of a rule are written by server-side apply, which refuses fields that the schema does not declare.
func serverSide(r *Request, rule Rule) bool {
	if rule.Apply == "" {
		return text(within(r.Controller, "metadata", "annotations"), ServerSide) != ""
	}
	return rule.Apply == "ServerSide"
}

func configData(r *Request, wish Wish, step int64) map[string]any {
	data := map[string]any{"color": wish.Color, "level": itoa(wish.Level)}
	if wish.has(WithMore) {
		data["own-more"] = "level " + itoa(wish.Level)
	}
	if wish.Memory {
		data["own-step"] = itoa(step)
	}
	if related := relatedText(r); related != "" {
		data["own-related"] = related
	}
	return data
}

func gadgetSpec(r *Request, wish Wish, step int64) map[string]any {
	settings := map[string]any{"own-color": wish.Color}
	if wish.has(WithMore) {
		settings["own-more"] = "level " + itoa(wish.Level)
	}
	if related := relatedText(r); related != "" {
		settings["own-related"] = related
	}
	ports, stages := []any{}, []any{}
	for i := range 1 + wish.Level%3 {
		port := map[string]any{"name": "own-" + itoa(i), "port": 8000 + wish.Level}
		stage := map[string]any{"name": "own-" + itoa(i)}
		if wish.has(WithProtocol) {
			port["protocol"] = "UDP"
		}
		if wish.has(WithNotes) {
			stage["note"] = "noted"
		}
		ports, stages = append(ports, port), append(stages, stage)
	}
	matching := map[string]any{"own-color": wish.Color}
	if wish.has(WithMatch) {
		matching["own-more"] = "yes"
	}
	spec := map[string]any{
		"color": wish.Color, "level": wish.Level, "settings": settings, "ports": ports,
		"tags": []any{wish.Color, "step " + itoa(step)}, "tolerations": []any{"own"},
		"matching": matching, "stages": stages,
	}
	if !wish.has(WithoutSize) {
		spec["size"] = 1 + wish.Level%3
	}
	if wish.has(WithParts) {
		spec["parts"] = []any{map[string]any{"id": int64(1)}, map[string]any{"id": wish.Level, "weight": int64(2)}}
	}
	return spec
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Declaration returns the rule as a controller object has it.
func (r Rule) Declaration() map[string]any {
	kind := Kinds[r.Kind]
	declared := map[string]any{"apiVersion": kind.APIVersion(r.Version), "resource": kind.Resource}
	strategy := map[string]any{}
	if r.Method != "" {
		strategy["method"] = r.Method
	}
	if r.Apply != "" {
		strategy["apply"] = r.Apply
	}
	if r.Checked && strings.HasPrefix(r.Method, "Rolling") {
		strategy["statusChecks"] = map[string]any{"conditions": []any{map[string]any{"type": Available, "status": "True"}}}
	}
	if len(strategy) > 0 {
		declared["updateStrategy"] = strategy
	}
	return declared
}
