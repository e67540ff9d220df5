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
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// Inline says of which controller there are inline hooks, which return what the other hooks of this package do.
type Inline struct {
	// Name is that of the controller.
	Name string
	// Decorator says that it is a DecoratorController, Parents are the kinds of its parents, and Rules those of its children.
	Decorator bool
	Parents   []int
	Rules     []Rule
	// ServerSide, Patient and MayDelete are what the annotations of the controller say.
	ServerSide, Patient, MayDelete bool
	// IgnoresStatus says that nobody tells of changes of the parent's status, Customizes that there is a customize hook.
	IgnoresStatus, Customizes bool
}

// inlined reports whether the hooks of a controller are inline. These leave out what depends on schemas that change.
func inlined(r *Request) bool {
	return inlineSync(r.Controller) != nil
}

// inlineSync returns the inline sync hook of a controller, nil if it has none.
func inlineSync(controller map[string]any) map[string]any {
	return value.Map(controller, "spec", "hooks", "sync", "inline")
}

// IsBlind reports whether the hooks of a controller are inline and do not look at the status of the parent.
func IsBlind(controller map[string]any) bool {
	hook := inlineSync(controller)
	variables, _ := hook["variables"].([]any)
	return hook != nil && !slices.ContainsFunc(variables, func(each any) bool {
		v, _ := each.(map[string]any)
		text, _ := v["expression"].(string)
		return strings.HasPrefix(text, "parent.?status") || text == "dyn(object)"
	})
}

// Hook returns the declaration of an inline hook.
func (i Inline) Hook(name hook.Name) map[string]any {
	if name == hook.Customize {
		return map[string]any{"variables": i.wish(), "relatedResources": i.relatedResources()}
	}
	finalizing := name == hook.Finalize
	declared := map[string]any{"variables": slices.Concat(i.wish(), i.observed(finalizing), i.counts(finalizing), i.contents())}
	list := "children"
	if i.Decorator {
		list = "attachments"
	}
	declared[list] = i.templates(finalizing)
	i.rest(declared, finalizing)
	if finalizing {
		declared["finalized"] = "${" + has(FinalizeAtOnce) + " || !variables.oneByOne && variables.observed.size() == 0}"
	}
	return declared
}

// variable declares a variable.
func variable(name, format string, args ...any) any {
	return map[string]any{"name": name, "expression": fmt.Sprintf(format, args...)}
}

// has is an expression that reports whether the wish has a bit of its shape.
func has(bit int64) string { return fmt.Sprintf("(variables.shape / %d %% 2 == 1)", bit) }

// optionally is an optional value, which there is under a condition.
func optionally(condition, value string) string {
	return fmt.Sprintf("(%s ? optional.of(%s) : optional.none())", condition, value)
}

func expression(text string) string { return "${" + text + "}" }

// parent is the name of the variable that has the parent.
func (i Inline) parent() string {
	if i.Decorator {
		return "object"
	}
	return "parent"
}

// wish reads what [WishOf] reads.
func (i Inline) wish() []any {
	switch {
	case i.Decorator:
		return i.anyWish()
	case i.Parents[0] == Gadget:
		return []any{
			variable("color", "parent.?spec.?color.orValue('')"), variable("level", "parent.?spec.?level.orValue(0)"),
			variable("children", "parent.?spec.?size.orValue(0) %% 3"), variable("shape", "variables.level %% %d", Shapes),
			variable("ordered", "false"), variable("inTurn", "false"), variable("memory", "false"), variable("mode", "''"),
			variable("selector", "{}"), variable("before", "0"),
		}
	}
	return append(specWish("parent"),
		variable("selector", "parent.?spec.?selector.?matchLabels.orValue({})"), variable("before", "parent.?status.?step.orValue(0)"))
}

// specWish reads the spec of a Thing or Realm.
func specWish(parent string) []any {
	var all []any
	for _, v := range [][3]string{
		{"color", "color", "''"},
		{"level", "level", "0"},
		{"children", "children", "0"},
		{"shape", "shape", "0"},
		{"ordered", "ordered", "false"},
		{"inTurn", "inTurn", "false"},
		{"memory", "memory", "false"},
		{"mode", "related", "''"},
	} {
		all = append(all, variable(v[0], "%s.?spec.?%s.orValue(%s)", parent, v[1], v[2]))
	}
	return all
}

// anyWish reads an object of any kind.
func (i Inline) anyWish() []any {
	all := []any{
		variable("self", "dyn(object)"), variable("isData", "has(variables.self.data)"),
		variable("isSized", "!variables.isData && variables.self.?spec.?size.hasValue()"),
		variable("text", "variables.self.?data.?level.orValue('')"),
		variable("number", "variables.text.matches('^[-+]?[0-9]+$') ? int(variables.text) : 0"),
		variable("level", "variables.isData ? variables.number : variables.self.?spec.?level.orValue(0)"),
		variable("color", "variables.isData ? variables.self.?data.?color.orValue('') : variables.self.?spec.?color.orValue('')"),
		variable("shape", "(variables.isData || variables.isSized) ? variables.level %% %d : variables.self.?spec.?shape.orValue(0)", Shapes),
		variable("some", "variables.isData ? 1 + variables.level %% 2 : variables.isSized ? variables.self.spec.size %% 3 : "+
			"variables.self.?spec.?children.orValue(0)"),
		variable("children", "variables.some < %d ? 1 + variables.some %% 2 : variables.some", many),
		variable("expired", "variables.self.?spec.?expired.orValue(false)"),
		variable("selector", "{}"), variable("before", "0"),
	}
	for _, v := range [][3]string{{"ordered", "ordered", "false"}, {"inTurn", "inTurn", "false"}, {"memory", "memory", "false"}, {"mode", "related", "''"}} {
		all = append(all, variable(v[0], "variables.self.?spec.?%s.orValue(%s)", v[1], v[2]))
	}
	return all
}

// fields are the fields of an object of lists of objects, by the order of the keys of the protocol. Where a resource is declared in two
// versions, each has a field.
func fields(rules []Rule) map[int][]string {
	versions := map[int][]string{}
	for _, rule := range rules {
		if !slices.Contains(versions[rule.Kind], rule.Version) {
			versions[rule.Kind] = append(versions[rule.Kind], rule.Version)
		}
	}
	named := map[int][]string{}
	for kind, all := range versions {
		for _, version := range slices.Sorted(slices.Values(all)) {
			name := Kinds[kind].Resource
			if len(all) > 1 {
				name += "_" + strings.NewReplacer(".", "_", "/", "_").Replace(Kinds[kind].APIVersion(version))
			}
			named[kind] = append(named[kind], name)
		}
	}
	return named
}

// inOrder are the kinds in the order of the keys of the protocol.
var inOrder = []int{ConfigMap, Deployment, Gadget, Realm, Thing}

// observed are the objects of [observedOnce], and what is said of them.
func (i Inline) observed(finalizing bool) []any {
	group := "children."
	if i.Decorator {
		group = "attachments."
	}
	lists, named := []string{"dyn([])"}, fields(i.Rules)
	for _, kind := range inOrder {
		for n, name := range named[kind] {
			list := group + name
			if n > 0 {
				list = fmt.Sprintf("%s.filter(o, !%s%s.exists(p, p.metadata.uid == o.metadata.uid))", list, group, named[kind][0])
			}
			lists = append(lists, "dyn("+list+")")
		}
	}
	all := []any{
		variable("observed", "%s", strings.Join(lists, " + ")), variable("related", "%s", i.relatedText()),
		variable("prefix", "%s.metadata.name + '-' + controller.metadata.name + '-'", i.parent()),
	}
	if !finalizing {
		return all
	}
	return append(all,
		variable("oneByOne", "!%s && %s && variables.observed.size() > 1", has(FinalizeAtOnce), has(FinalizeOneByOne)),
		variable("kept", "variables.oneByOne ? variables.observed.map(o, o.metadata.name).slice(0, variables.observed.size() - 1) : []"))
}

// relatedText says what is related, as the function of that name does.
func (i Inline) relatedText() string {
	if !i.Customizes {
		return "''"
	}
	named := fields(append(slices.Clone(relatedKinds), Rule{Kind: ConfigMap, Version: "v1"}))
	lists := []string{"dyn([])"}
	for _, kind := range inOrder {
		for _, name := range named[kind] {
			if !Kinds[kind].Namespaced {
				lists = append(lists, fmt.Sprintf("dyn(related.%s)", name))
				continue
			}
			for _, namespace := range Namespaces {
				lists = append(lists, fmt.Sprintf("dyn(related.%s.filter(o, o.metadata.namespace == '%s'))", name, namespace))
			}
		}
	}
	return fmt.Sprintf("(%s).map(o, o.metadata.name + '=' + %s + ';').join('')", strings.Join(lists, " + "), colorOf)
}

// colorOf is an expression for the color that an object wants.
const colorOf = "(has(o.data) ? o.?data.?color.orValue('') : o.?spec.?color.orValue(''))"

// counts are how many children are desired, of each kind and of all.
func (i Inline) counts(finalizing bool) []any {
	turns := "variables.inTurn"
	if finalizing && !i.Decorator {
		turns = "false"
	}
	total := fmt.Sprintf("variables.ordered ? [variables.children, variables.observed.size() / %d + 1].min() : variables.children", max(1, len(i.Rules)))
	if i.Decorator {
		total = "object.metadata.name.contains('-d') ? 0 : " + total
	}
	all, sum := []any{variable("total", "%s", total)}, "0"
	for _, rule := range i.once() {
		kind := Kinds[rule.Kind]
		there, leaving, count := "there"+kind.Letter, "leaving"+kind.Letter, "count"+kind.Letter
		turn := fmt.Sprintf("variables.%[1]s > variables.total && variables.%[2]s > 0 ? variables.%[1]s - variables.%[2]s : "+
			"[[variables.total, variables.%[1]s - 1].max(), variables.%[1]s + 1].min()", there, leaving)
		if i.Decorator {
			turn = "object.metadata.name.contains('-d') ? 0 : " + turn
		}
		all = append(all, variable(there, "variables.observed.filter(o, o.kind == '%s').size()", kind.Name),
			variable(leaving, "variables.observed.filter(o, o.kind == '%s' && has(o.metadata.deletionTimestamp)).size()", kind.Name),
			variable(count, "%s ? (%s) : variables.total", turns, turn))
		sum += " + variables." + count
	}
	return append(all, variable("desired", "%s", sum))
}

// once are the rules of children, each kind once, in the order of their children.
func (i Inline) once() []Rule {
	var all []Rule
	done := map[int]bool{}
	for _, rule := range slices.Backward(i.Rules) {
		if !done[rule.Kind] {
			done[rule.Kind] = true
			all = append(all, rule)
		}
	}
	return all
}

// contents are what children are made of.
func (i Inline) contents() []any {
	step, remembers := "0", "variables.memory"
	switch {
	case i.Decorator: // It has no status to count in.
	case i.IgnoresStatus:
		remembers = "false"
	default:
		step = "variables.memory ? [variables.before + 1, variables.level].min() : 0"
	}
	return []any{
		variable("remembers", "%s", remembers), variable("step", "%s", step),
		variable("labels", "(%s ? {'own-color': variables.color} : {}).merge(variables.selector)", has(WithLabels)),
		variable("more", "%s", optionally(has(WithMore), "'level ' + string(variables.level)")),
		variable("stepText", "%s", optionally("variables.remembers", "string(variables.step)")),
		variable("relatedText", "%s", optionally("variables.related != ''", "variables.related")),
		variable("data", "{'color': variables.color, 'level': string(variables.level), ?'own-more': variables.more, "+
			"?'own-step': variables.stepText, ?'own-related': variables.relatedText}"),
		variable("gadget", "%s", i.gadget()),
		variable("env", "[{'name': 'own-color', 'value': variables.color}] + "+
			"(variables.remembers ? [{'name': 'own-step', 'value': string(variables.step)}] : []) + "+
			"(variables.related != '' ? [{'name': 'own-related', 'value': variables.related}] : [])"),
		variable("containers", "[{'name': 'own-main', 'image': 'main:' + string(variables.level), 'env': variables.env}] + "+
			"(%s ? [dyn({'name': 'own-more', 'image': 'more:' + string(variables.level)})] : [])", has(WithMore)),
	}
}

// gadget is the spec of a Gadget.
func (i Inline) gadget() string {
	extra := ""
	for _, rule := range i.once() {
		if rule.Kind == Gadget && (rule.Apply == "Merge" || rule.Apply == "" && !i.ServerSide) {
			extra = ", ?'extra': " + optionally(has(WithExtra), "variables.color")
		}
	}
	return "{'color': variables.color, 'level': variables.level, " +
		"'settings': {'own-color': variables.color, ?'own-more': variables.more, ?'own-related': variables.relatedText}, " +
		"'ports': lists.range(1 + variables.level % 3).map(j, {'name': 'own-' + string(j), 'port': 8000 + variables.level, ?'protocol': " +
		optionally(has(WithProtocol), "'UDP'") + "}), " +
		"'stages': lists.range(1 + variables.level % 3).map(j, {'name': 'own-' + string(j), ?'note': " + optionally(has(WithNotes), "'noted'") + "}), " +
		"'tags': [variables.color, 'step ' + string(variables.step)], 'tolerations': ['own'], " +
		"'matching': {'own-color': variables.color, ?'own-more': " + optionally(has(WithMatch), "'yes'") + "}, " +
		"?'size': " + optionally("!"+has(WithoutSize), "1 + variables.level % 3") + ", " +
		"?'parts': " + optionally(has(WithParts), "[{'id': 1}, {'id': variables.level, 'weight': 2}]") + extra + "}"
}

// templates are those of children.
func (i Inline) templates(finalizing bool) []any {
	var all []any
	for _, rule := range i.once() {
		kind := Kinds[rule.Kind]
		name := "${variables.prefix}" + kind.Letter + "${n}"
		meta := map[string]any{
			"name": name, "labels": expression(optionally("variables.labels.size() > 0", "variables.labels")),
			"annotations": expression(optionally(has(WithLabels), "{'own-level': string(variables.level)}")),
		}
		i.placeIn(meta)
		object := map[string]any{"apiVersion": kind.APIVersion(rule.Version), "kind": kind.Name, "metadata": meta}
		switch rule.Kind {
		case Gadget:
			object["spec"] = "${variables.gadget}"
		case Deployment:
			object["spec"] = i.deployment(rule, name)
		default:
			object["data"] = "${variables.data}"
		}
		in := fmt.Sprintf("lists.range(variables.count%s)", kind.Letter)
		if finalizing {
			in += fmt.Sprintf(".filter(n, variables.prefix + '%s' + string(n) in variables.kept)", kind.Letter)
		}
		all = append(all, map[string]any{"forEach": []any{map[string]any{"name": "n", "in": in}}, "template": object})
	}
	return all
}

// placeIn says in which namespace a child of a cluster-scoped parent is.
func (i Inline) placeIn(meta map[string]any) {
	place := fmt.Sprintf("['%s', '%s'][n %% 2]", Namespaces[0], Namespaces[1])
	switch {
	case i.Decorator:
		meta["namespace"] = expression(optionally("!has(variables.self.metadata.namespace)", place))
	case !Kinds[i.Parents[0]].Namespaced:
		meta["namespace"] = expression(place)
	}
}

// deployment is the spec of a Deployment.
func (i Inline) deployment(rule Rule, name string) map[string]any {
	name = strings.ReplaceAll(strings.ReplaceAll(name, "${variables.prefix}", "variables.prefix + '"), "${n}", "' + string(n)")
	selector := fmt.Sprintf("(%s ? {'deployment': %s, 'shade': 'other'} : {'deployment': %s})", has(WithProtocol), name, name)
	if rule.Method != "Recreate" && rule.Method != "RollingRecreate" {
		there := fmt.Sprintf("variables.observed.filter(o, o.kind == 'Deployment' && o.metadata.name == %s && "+
			"o.?spec.?selector.?matchLabels.orValue({}).size() > 0)", name)
		selector = fmt.Sprintf("dyn(%s).map(o, o.spec.selector.matchLabels) + [%s]", there, selector)
		selector = "(" + selector + ")[0]"
	}
	return map[string]any{
		"selector": map[string]any{"matchLabels": expression(selector)},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"deployment": expression(name), "shade": "other"}},
			"spec":     map[string]any{"containers": "${variables.containers}"},
		},
		"replicas": expression(optionally("!"+has(WithoutSize), "variables.level % 3")),
	}
}

// relatedResources are the rules of [customize].
func (i Inline) relatedResources() []any {
	mode := func(name string) string { return fmt.Sprintf("variables.mode == '%s'", name) }
	configMaps := func(fields map[string]any) map[string]any {
		maps.Copy(fields, map[string]any{"apiVersion": "v1", "resource": "configmaps"})
		return fields
	}
	unplaced := fmt.Sprintf("dyn(%s).metadata.?namespace.orValue('') == ''", i.parent())
	all := []any{
		map[string]any{"when": mode("labels"), "template": configMaps(map[string]any{
			"labelSelector": map[string]any{"matchLabels": map[string]any{Pick: "${variables.color}"}},
		})},
		map[string]any{"when": mode("names"), "template": configMaps(map[string]any{
			"names":     []any{"related-0", "related-${1 + variables.level % 3}"},
			"namespace": expression(optionally(unplaced, "'"+Namespaces[0]+"'")),
		})},
		map[string]any{"when": mode("namespace"), "template": configMaps(map[string]any{
			"namespace":     expression(fmt.Sprintf("%s ? '%s' : dyn(%s).metadata.namespace", unplaced, Namespaces[1], i.parent())),
			"labelSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": Pick, "operator": "Exists"}}},
		})},
		map[string]any{"when": mode(Kinded), "template": configMaps(map[string]any{"names": []any{"related-0", "related-1"}})},
	}
	for n, rule := range relatedKinds {
		kind := Kinds[rule.Kind]
		all = append(all, map[string]any{
			"when": fmt.Sprintf("%s && variables.level %% %d == %d", mode(Kinded), len(relatedKinds), n),
			"template": map[string]any{
				"apiVersion": kind.APIVersion(rule.Version), "resource": kind.Resource, "names": []any{kind.Letter + "0", kind.Letter + "1"},
			},
		})
	}
	return all
}

// rest are what the response of a sync or finalize hook has besides children.
func (i Inline) rest(declared map[string]any, finalizing bool) {
	if i.Decorator {
		red, level := "variables.color == 'red'", has(WithLabels)
		if finalizing {
			red, level = "true", "false"
		}
		declared["labels"] = map[string]any{"by-" + i.Name: expression(red + " ? dyn(null) : dyn(variables.color)")}
		declared["annotations"] = map[string]any{Group + "/" + i.Name: expression(level + " ? dyn(string(variables.level)) : dyn(null)")}
		if i.MayDelete && !finalizing {
			declared["delete"] = "variables.expired"
		}
		return
	}
	again := "0.0"
	if i.Patient {
		again = fmt.Sprintf("%d.0", int64(never))
	}
	declared["resyncAfterSeconds"] = expression(fmt.Sprintf("%s && variables.observed.size() < variables.desired ? 150.5 : %s", has(WithResync), again))
	ready := "variables.observed.filter(o, !has(o.metadata.deletionTimestamp) && (" + colorOf + " == variables.color || o.kind == 'Deployment' && " +
		"o.?status.?observedGeneration.orValue(0) == o.metadata.?generation.orValue(0) && " +
		"o.?status.?conditions.orValue([]).exists(c, c.type == '" + Available + "' && c.status == 'True'))).size()"
	status := map[string]any{
		"by": "${controller.metadata.name}", "color": "${variables.color}", "observed": "${variables.observed.size()}", "ready": expression(ready),
		"extras": "${variables.observed.filter(o, o.?spec.?extra.orValue('') != '').size()}", "related": "${variables.related}",
		"step": expression(optionally("variables.remembers", "variables.step")),
	}
	if i.Parents[0] != Realm {
		status["note"] = expression(optionally(has(WithParts), "'level ' + string(variables.level)"))
	}
	declared["status"] = status
}
