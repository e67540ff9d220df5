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

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
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
	// Retain says that children stay when their parent is deleted.
	Retain bool
}

// rules returns the kinds that a controller declares in a field of its spec, each once: the last rule of a kind counts.
func rules(controller map[string]any, field string) []Rule {
	var all []Rule
	for _, each := range value.List(controller, "spec", field) {
		m, _ := each.(map[string]any) // The API server has validated it.
		group, version := Split(value.String(m, "apiVersion"))
		strategy := value.Map(m, "updateStrategy")
		rule := Rule{
			Kind: ByResource(group, value.String(m, "resource")), Version: version, Method: value.String(strategy, "method"), Apply: value.String(strategy, "apply"),
			Retain: value.String(m, "onParentDeletion") == "Retain",
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
		if value.String(o, "kind") != Kinds[rule.Kind].Name {
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
		maps.Copy(labels, value.Map(r.Parent, "spec", "selector", "matchLabels"))
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
	if other := slices.IndexFunc(kind.Versions, func(v string) bool { return v != version }); other >= 0 && i%2 == 1 && wish.has(InOtherVersion) && !inlined(r) {
		version = kind.Versions[other]
	}
	o := map[string]any{"apiVersion": kind.APIVersion(version), "kind": kind.Name, "metadata": meta}
	switch rule.Kind {
	case Gadget:
		o["spec"] = gadgetSpec(r, wish, step)
		if wish.has(WithExtra) && !serverSide(r, rule) {
			value.Map(o, "spec")["extra"] = wish.Color
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
		return value.String(r.Controller, "metadata", "annotations", ServerSide) != ""
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
	if r.Retain {
		declared["onParentDeletion"] = "Retain"
	}
	return declared
}

// Edition is the state of the CustomResourceDefinition of a kind.
type Edition struct {
	// Extra adds the field spec.extra to the schema of Gadgets, and status.note to that of Realms. Without it they are pruned.
	Extra bool
	// Graded adds the field spec.grade, with a default, to the schema of Gadgets.
	Graded bool
	// Single serves the first version alone.
	Single bool
}

// CustomResourceDefinition returns the definition of a custom kind in an edition. It is nil for a kind of Kubernetes'.
func CustomResourceDefinition(kind int, e Edition) map[string]any {
	k := Kinds[kind]
	if k.Group != Group {
		return nil
	}
	var versions []any
	for i, v := range k.Versions {
		versions = append(versions, map[string]any{
			"name": v, "served": i == 0 || !e.Single, "storage": i == 0,
			"schema":       map[string]any{"openAPIV3Schema": schemaOf(kind, e)},
			"subresources": map[string]any{"status": map[string]any{}},
		})
	}
	scope := "Cluster"
	if k.Namespaced {
		scope = "Namespaced"
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": k.Resource + "." + k.Group},
		"spec": map[string]any{
			"group": k.Group, "scope": scope, "versions": versions,
			"names": map[string]any{
				"kind": k.Name, "listKind": k.Name + "List", "plural": k.Resource, "singular": strings.ToLower(k.Name),
			},
		},
	}
}

func schemaOf(kind int, e Edition) map[string]any {
	spec, status := wishSchema(), statusSchema(true)
	switch kind {
	case Realm:
		status = statusSchema(e.Extra)
	case Gadget:
		spec = gadgetSchema(e)
		status = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	}
	return object(map[string]any{"spec": spec, "status": status})
}

func object(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties}
}

func typed(name string) map[string]any { return map[string]any{"type": name} }

func defaulted(name string, value any) map[string]any {
	return map[string]any{"type": name, "default": value}
}

func stringMap() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": typed("string")}
}

func list(kind string, items map[string]any) map[string]any {
	return map[string]any{"type": "array", "x-kubernetes-list-type": kind, "items": items}
}

func wishSchema() map[string]any {
	return object(map[string]any{
		"children": typed("integer"), "color": typed("string"), "level": typed("integer"), "shape": typed("integer"),
		"ordered": typed("boolean"), "inTurn": typed("boolean"), "memory": typed("boolean"), "expired": typed("boolean"), "related": typed("string"),
		"selector": object(map[string]any{"matchLabels": stringMap()}),
	})
}

func statusSchema(extra bool) map[string]any {
	properties := map[string]any{
		"by": typed("string"), "color": typed("string"), "observed": typed("integer"), "ready": typed("integer"), "extras": typed("integer"),
		"step": typed("integer"), "related": typed("string"), "observedGeneration": typed("integer"),
		"conditions": list("atomic", map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
	}
	if extra {
		properties["note"] = typed("string")
	}
	return object(properties)
}

func gadgetSchema(e Edition) map[string]any {
	port := object(map[string]any{
		"name": typed("string"), "port": typed("integer"), "protocol": defaulted("string", "TCP"), "comment": typed("string"),
	})
	port["required"] = []any{"name"}
	ports := list("map", port)
	ports["x-kubernetes-list-map-keys"] = []any{"name"}
	// As many custom resources do, it does not say how the stages are merged.
	stages := map[string]any{"type": "array", "items": object(map[string]any{
		"name": typed("string"), "note": typed("string"), "weight": defaulted("integer", 1),
	})}
	matching := stringMap()
	matching["x-kubernetes-map-type"] = "atomic"
	properties := map[string]any{
		"matching": matching, "stages": stages,
		"size": defaulted("integer", 1), "color": typed("string"), "level": typed("integer"), "mode": defaulted("string", "auto"),
		"settings": stringMap(), "ports": ports, "tags": list("atomic", typed("string")), "tolerations": list("atomic", typed("string")),
		"foreign": typed("string"),
		"parts":   list("atomic", object(map[string]any{"id": typed("integer"), "weight": defaulted("integer", 1)})),
	}
	if e.Extra {
		properties["extra"] = typed("string")
	}
	if e.Graded {
		properties["grade"] = defaulted("string", "b")
	}
	return object(properties)
}

// Available is the condition of a Deployment whose Pods are available.
const Available = "Available"

// deploymentSpec returns the spec of a Deployment.
func deploymentSpec(r *Request, wish Wish, step int64, rule Rule, name string) map[string]any {
	env := []any{map[string]any{"name": "own-color", "value": wish.Color}}
	if wish.Memory {
		env = append(env, map[string]any{"name": "own-step", "value": itoa(step)})
	}
	if related := relatedText(r); related != "" {
		env = append(env, map[string]any{"name": "own-related", "value": related})
	}
	containers := []any{map[string]any{"name": "own-main", "image": "main:" + itoa(wish.Level), "env": env}}
	if wish.has(WithMore) {
		containers = append(containers, map[string]any{"name": "own-more", "image": "more:" + itoa(wish.Level)})
	}
	selector := selectorOf(r, wish, rule, name)
	spec := map[string]any{
		"selector": map[string]any{"matchLabels": selector},
		"template": map[string]any{"metadata": map[string]any{"labels": podLabels(name)}, "spec": map[string]any{"containers": containers}},
	}
	if !wish.has(WithoutSize) {
		spec["replicas"] = wish.Level % 3
	}
	return spec
}

// selectorOf returns the selector of a Deployment, which no update can change. With a method that recreates it follows the wish; otherwise it
// is that of the Deployment that is there.
func selectorOf(r *Request, wish Wish, rule Rule, name string) map[string]any {
	if rule.Method != "Recreate" && rule.Method != "RollingRecreate" {
		for _, o := range r.Children.All() {
			if has := value.Map(o, "spec", "selector", "matchLabels"); value.String(o, "kind") == Kinds[Deployment].Name && Meta(o, "name") == name && len(has) > 0 {
				return has
			}
		}
	}
	selector := map[string]any{"deployment": name}
	if wish.has(WithProtocol) { // Of a Deployment it changes nothing else.
		selector = podLabels(name)
	}
	return selector
}

// podLabels returns the labels of a Deployment's Pods, all or some of which its selector has.
func podLabels(name string) map[string]any {
	return map[string]any{"deployment": name, "shade": "other"}
}

// Rollout returns the status of a Deployment whose Pods are as its spec says, or not yet.
func Rollout(deployment map[string]any, done bool) map[string]any {
	spec := value.Map(deployment, "spec")
	replicas, available, status := value.Int(spec, "replicas"), int64(0), "False"
	if done {
		available, status = replicas, "True"
	}
	rollout := map[string]any{
		"observedGeneration": value.Int(deployment, "metadata", "generation"),
		"conditions":         []any{map[string]any{"type": Available, "status": status, "reason": "Simulated", "message": itoa(available) + " of " + itoa(replicas)}},
	}
	for name, n := range map[string]int64{"replicas": replicas, "updatedReplicas": available, "availableReplicas": available, "readyReplicas": available} {
		if n > 0 { // A real one leaves out what is zero.
			rollout[name] = n
		}
	}
	return rollout
}

// RolledOut reports whether a Deployment says of its present generation that it is available.
func RolledOut(deployment map[string]any) bool {
	status := value.Map(deployment, "status")
	if value.Int(status, "observedGeneration") != value.Int(deployment, "metadata", "generation") {
		return false
	}
	for _, each := range value.List(status, "conditions") {
		condition, _ := each.(map[string]any) // The API server has validated it.
		if value.String(condition, "type") == Available {
			return value.String(condition, "status") == "True"
		}
	}
	return false
}
