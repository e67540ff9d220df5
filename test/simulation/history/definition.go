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
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
)

// Controllers is the number of controllers: two composites and two decorators, in this order.
const Controllers = 4

// controllerName returns the name of a controller.
func controllerName(i int) string { return []string{"c0", "c1", "d2", "d3"}[i] }

// definition is what a controller object says, as far as histories change it.
type definition struct {
	index     int
	chain     bool
	server    bool
	patient   bool
	workloads bool
	// many says that its parents may want so many children that one kind of them is enough.
	many      bool
	parents   []parentRule
	children  []hooks.Rule
	finalize  bool
	customize bool
	// inline says that the hooks are, and retain that children stay without their parents.
	inline bool
	retain bool
	// synced says that the condition Synced is kept in parents.
	synced   bool
	version  string
	selected bool
	ignore   bool
	resync   int64
	workers  int64
	paused   bool
	// guard is the limit of deletions, empty for none.
	guard string
}

type parentRule struct {
	kind    int
	version string
}

func (d *definition) decorator() bool { return d.index >= 2 }

// handles reports whether objects of a kind are its parents.
func (d *definition) handles(kind int) bool {
	return slices.ContainsFunc(d.parents, func(p parentRule) bool { return p.kind == kind })
}

var (
	methods = []string{"", "OnDelete", "Recreate", "InPlace", "InPlace", "InPlace", "RollingRecreate", "RollingInPlace"}
	applies = []string{"", "", "ServerSide", "Merge"}
)

// define returns a definition for a controller.
func define(index int, o Options, r *rand.Rand) *definition {
	d := &definition{
		index: index, chain: o.Chain, server: o.ServerSide, patient: o.Patient, workloads: o.Workloads, many: o.Many > few, version: []string{"v1", "v2"}[r.IntN(2)], finalize: r.IntN(2) == 0, customize: r.IntN(3) == 0,
		selected: r.IntN(3) == 0, ignore: r.IntN(6) == 0, inline: o.Inline>>index&1 == 1, retain: o.Retain>>index&1 == 1,
		synced: o.Synced>>index&1 == 1,
	}
	d.resetParents(r)
	d.resetChildren(r)
	return d
}

func (d *definition) resetParents(r *rand.Rand) {
	switch d.index {
	case 0:
		d.parents = []parentRule{d.parent(hooks.Thing, r)}
		return
	case 1:
		d.parents = []parentRule{d.parent(hooks.Realm, r)}
		if d.chain {
			d.parents = []parentRule{d.parent(hooks.Gadget, r)}
		}
		return
	}
	d.parents = nil
	for _, kind := range r.Perm(hooks.Parents)[:1+r.IntN(3)] {
		d.parents = append(d.parents, d.parent(kind, r))
	}
	if d.many && !slices.ContainsFunc(d.parents, func(p parentRule) bool { return p.kind == hooks.Thing }) {
		d.parents = append(d.parents, d.parent(hooks.Thing, r))
	}
}

func (d *definition) parent(kind int, r *rand.Rand) parentRule {
	versions := hooks.Kinds[kind].Versions
	return parentRule{kind, versions[r.IntN(len(versions))]}
}

func (d *definition) resetChildren(r *rand.Rand) {
	kinds := []int{hooks.Gadget, hooks.ConfigMap}
	if d.workloads {
		kinds = append(kinds, hooks.Deployment)
	}
	r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = kinds[:1+r.IntN(len(kinds))]
	if d.many {
		kinds = kinds[:1]
	}
	if d.chain && d.index == 1 {
		kinds = []int{hooks.ConfigMap} // Gadgets of Gadgets would never end.
	}
	d.children = nil
	for _, kind := range kinds {
		d.children = append(d.children, d.child(kind, r))
	}
}

func (d *definition) child(kind int, r *rand.Rand) hooks.Rule {
	versions := hooks.Kinds[kind].Versions
	rule := hooks.Rule{
		Kind: kind, Version: versions[r.IntN(len(versions))], Method: methods[r.IntN(len(methods))], Apply: applies[r.IntN(len(applies))],
	}
	rule.Retain = d.retain
	rule.Checked = kind == hooks.Deployment && !d.decorator() && r.IntN(2) == 0
	return rule
}

// clone returns a copy that can be edited.
func (d *definition) clone() *definition {
	c := *d
	c.parents, c.children = slices.Clone(d.parents), slices.Clone(d.children)
	return &c
}

// edits are the variants of EditDefinition.
var edits = []string{
	"kinds", "order", "version", "strategy", "apply", "finalize", "customize", "selector", "resync", "hook-version", "workers", "parents", "ignore",
}

// guards are the limits of deletions that a definition may have.
var guards = []string{"", "", "0", "1", "2", "50%"}

// edit changes the definition.
func (d *definition) edit(how string, r *rand.Rand) {
	switch how {
	case "kinds":
		d.resetChildren(r)
	case "parents":
		d.resetParents(r)
	case "order":
		slices.Reverse(d.children)
		slices.Reverse(d.parents)
	case "version":
		for i := range d.children {
			d.children[i].Version = d.child(d.children[i].Kind, r).Version
		}
		for i := range d.parents {
			d.parents[i] = d.parent(d.parents[i].kind, r)
		}
	case "strategy":
		d.update(func() string { return methods[r.IntN(len(methods))] })
	case "rolling":
		d.update(func() string { return []string{"RollingInPlace", "RollingRecreate"}[r.IntN(2)] })
	case "recreating", "replacing":
		d.recreate(how == "replacing", r)
	case "server-side":
		for i := range d.children {
			d.children[i].Apply = "ServerSide"
		}
	case "apply":
		for i := range d.children {
			d.children[i].Apply = applies[r.IntN(len(applies))]
		}
	case "finalize", "customize", "selector", "ignore", "inline":
		of := map[string]*bool{"finalize": &d.finalize, "customize": &d.customize, "selector": &d.selected, "ignore": &d.ignore, "inline": &d.inline}[how]
		*of = !*of
	case "finalizing":
		d.finalize = true
	case "resync":
		d.resync = []int64{0, 300, 600}[r.IntN(3)]
	case "hook-version":
		d.version = []string{"v1", "v2"}[r.IntN(2)]
	case "workers":
		d.workers = []int64{0, 1, 3}[r.IntN(3)]
	case "pause", "resume":
		d.paused = how == "pause"
	case "guard":
		d.guard = guards[r.IntN(len(guards))]
	}
}

// recreate has all children recreated, and replaces the rule of Deployments if there is to be one.
func (d *definition) recreate(replacing bool, r *rand.Rand) {
	if replacing && d.workloads {
		d.children = append(slices.DeleteFunc(d.children, isOfDeployments), d.child(hooks.Deployment, r))
	}
	for i := range d.children {
		d.children[i].Method = "Recreate"
		if isOfDeployments(d.children[i]) {
			d.children[i].Apply = "ServerSide"
		}
	}
}

// update has all children updated by the methods that method returns.
func (d *definition) update(method func() string) {
	for i := range d.children {
		d.children[i].Method = method()
	}
}

func isOfDeployments(rule hooks.Rule) bool { return rule.Kind == hooks.Deployment }

// selection is the label of objects that controllers with a selector select.
const selection = hooks.Group + "/selected"

// kind returns the kind and the plural name of the controller.
func (d *definition) kind() (kind, resource string) {
	if d.decorator() {
		return "DecoratorController", "decoratorcontrollers"
	}
	return "CompositeController", "compositecontrollers"
}

// object returns the controller object without what the API server adds.
func (d *definition) object() map[string]any {
	kind, _ := d.kind()
	annotations := map[string]any{}
	if d.index == 3 && !d.chain {
		annotations[hooks.MayStatus] = "true"
	}
	if d.server {
		annotations[hooks.ServerSide] = "true"
	}
	if d.patient && !d.decorator() {
		annotations[hooks.Patient] = "true"
	}
	if d.index == 2 {
		annotations[hooks.MayDelete] = "true"
	}
	spec := map[string]any{"hooks": d.hooks()}
	if d.resync > 0 {
		spec["resyncPeriodSeconds"] = d.resync
	}
	if d.workers > 0 {
		spec["workers"] = d.workers
	}
	if d.paused {
		spec["paused"] = true
	}
	if d.guard != "" {
		spec["deletionGuard"] = map[string]any{"maxDeletions": limit(d.guard)}
	}
	children := []any{}
	for _, c := range d.children {
		children = append(children, c.Declaration())
	}
	if d.decorator() {
		spec["resources"], spec["attachments"] = d.parentRules(), children
	} else {
		spec["parentResource"], spec["childResources"] = d.parentRules()[0], children
		spec["generateSelector"] = d.index == 1
	}
	return map[string]any{
		"apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": kind,
		"metadata": map[string]any{"name": controllerName(d.index), "annotations": annotations}, "spec": spec,
	}
}

// expressions are the hooks where they are inline.
func (d *definition) expressions() hooks.Inline {
	i := hooks.Inline{
		Name: controllerName(d.index), Decorator: d.decorator(), Rules: d.children, ServerSide: d.server, Patient: d.patient && !d.decorator(), Customizes: d.customize,
		MayDelete: d.index == 2,
	}
	for _, p := range d.parents {
		i.Parents = append(i.Parents, p.kind)
		i.IgnoresStatus = d.ignore && hooks.Kinds[p.kind].HasStatus
	}
	return i
}

// limit returns a limit as a definition has it: a number, or a percentage.
func limit(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return text
}

func (d *definition) parentRules() []any {
	var rules []any
	for _, p := range d.parents {
		k := hooks.Kinds[p.kind]
		rule := map[string]any{"apiVersion": k.APIVersion(p.version), "resource": k.Resource}
		if d.selected {
			rule["labelSelector"] = map[string]any{"matchLabels": map[string]any{selection: "yes"}}
		}
		if d.ignore && k.HasStatus { // Others have no generation, so that every change would be ignored (docs/reference/contract.md#s5.2).
			rule["ignoreStatusChanges"] = true
		}
		if d.synced {
			rule["conditions"] = []any{invariant.Synced}
		}
		if d.decorator() && d.index == 2 {
			rule["allowDelete"] = true
		}
		rules = append(rules, rule)
	}
	return rules
}

func (d *definition) hooks() map[string]any {
	kind, _ := d.kind()
	url := "http://hooks.sim/" + strings.ToLower(strings.TrimSuffix(kind, "Controller")) + "/" + controllerName(d.index) + "/"
	declared := map[string]any{}
	for name, has := range map[string]bool{"sync": true, "finalize": d.finalize, "customize": d.customize} {
		switch {
		case has && d.inline:
			declared[name] = map[string]any{"inline": d.expressions().Hook(hook.Name(name))}
		case has:
			declared[name] = map[string]any{"version": d.version, "webhook": map[string]any{"url": url + name}}
		}
	}
	return declared
}
