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
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
)

// configurations are the webhook configurations and policies that come and go. Those of "related" are about the kind of a step.
var configurations = []string{
	"validating", "unrelated", "related", "certificate", "validating-policy", "unrelated-policy", "related-policy", "unrelated-binding",
}

// registrations are the resources of configurations, with their kinds.
var registrations = map[string][2]string{
	"validating":        {"validatingwebhookconfigurations", "ValidatingWebhookConfiguration"},
	"unrelated":         {"mutatingwebhookconfigurations", "MutatingWebhookConfiguration"},
	"related":           {"mutatingwebhookconfigurations", "MutatingWebhookConfiguration"},
	"validating-policy": {"validatingadmissionpolicies", "ValidatingAdmissionPolicy"},
	"unrelated-policy":  {"mutatingadmissionpolicies", "MutatingAdmissionPolicy"},
	"related-policy":    {"mutatingadmissionpolicies", "MutatingAdmissionPolicy"},
	"unrelated-binding": {"mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"},
}

const admissionGroup = "/apis/admissionregistration.k8s.io/v1/"

// rulesOf returns the rules of a configuration: those of a kind if it is related, and of one that nobody has otherwise.
func rulesOf(how string, kind int) map[string]any {
	group, resource := "nobody.example.com", "nothings"
	if mutates(how) || how == "validating" || how == "validating-policy" {
		group, resource = hooks.Kinds[kind].Group, hooks.Kinds[kind].Resource
	}
	return map[string]any{
		"apiGroups": []any{group}, "apiVersions": []any{"*"}, "resources": []any{resource}, "operations": []any{"CREATE", "UPDATE"}, "scope": "*",
	}
}

// configuration returns a webhook configuration or a policy. What it is about differs by level.
func configuration(how string, kind, level int) map[string]any {
	o := metadata(map[string]any{"name": how + "-" + hooks.Kinds[kind].Resource})
	o["apiVersion"], o["kind"] = "admissionregistration.k8s.io/v1", registrations[how][1]
	selector := map[string]any{"matchLabels": map[string]any{"level": fmt.Sprint(level)}}
	switch how {
	case "unrelated-binding":
		o["spec"] = map[string]any{"policyName": "unrelated-policy-nobody", "matchResources": map[string]any{"objectSelector": selector}}
	case "validating-policy", "unrelated-policy", "related-policy":
		constraints := map[string]any{"resourceRules": []any{rulesOf(how, kind)}, "objectSelector": selector}
		spec := map[string]any{"matchConstraints": constraints, "failurePolicy": "Fail"}
		if how != "validating-policy" {
			spec["reinvocationPolicy"] = "Never"
			spec["mutations"] = []any{map[string]any{
				"patchType": "ApplyConfiguration", "applyConfiguration": map[string]any{"expression": "Object{}"},
			}}
		}
		o["spec"] = spec
	default:
		o["webhooks"] = []any{map[string]any{
			"name": "hook.example.com", "clientConfig": map[string]any{"url": "https://hook.example.com", "caBundle": "Q0E="},
			"rules": []any{rulesOf(how, kind)}, "objectSelector": selector, "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
			"failurePolicy": "Ignore", "matchPolicy": "Equivalent", "reinvocationPolicy": "Never", "timeoutSeconds": int64(10),
		}}
		if how == "validating" {
			delete(field(map[string]any{"": o["webhooks"].([]any)[0]}, ""), "reinvocationPolicy") //nolint:forcetypeassert // It is made above.
		}
	}
	return o
}

// configure creates, changes or deletes a configuration, with a Count at rest: what changes no stored value has no hook asked and nothing requested.
func (r *runner) configure(s Step) {
	if s.Count == 0 || !r.atEase(s) {
		r.reconfigure(s)
		return
	}
	r.drew(ofConfigurationsAtRest, s.How)
	if s.How == "certificate" && !r.configured[certified(s.Kind)] {
		r.effects(s, r.reconfigure) // It creates what it is about.
	}
	always := r.effects(s, r.reconfigure)
	if !always.any() || r.result.Violation != nil || r.effects(s, func(Step) {}).any() {
		return
	}
	// What happens each time is no resync, be it periodic or asked for by a hook: the times between changes differ.
	for again := range confirmations {
		r.wait(time.Duration(again) * watched / confirmations)
		if always = always.and(r.effects(s, r.reconfigure)); r.result.Violation != nil {
			return
		}
	}
	r.blameConfiguration(s, always)
}

// confirmations is how often a change is repeated for its effects to count.
const confirmations = 5

// watched is the time for which is waited for the effects of a configuration.
const watched = 45 * time.Second

// effects are what the engine did within a time.
type effects struct {
	asked    map[invariant.Asking]int
	requests int
	dryRuns  map[string]int
}

func (e effects) any() bool { return e.requests > 0 }

// and returns what is in both.
func (e effects) and(others effects) effects {
	both := effects{asked: map[invariant.Asking]int{}, requests: min(e.requests, others.requests), dryRuns: map[string]int{}}
	for of, times := range e.asked {
		if times = min(times, others.asked[of]); times > 0 {
			both.asked[of] = times
		}
	}
	for resource, times := range e.dryRuns {
		both.dryRuns[resource] = min(times, others.dryRuns[resource])
	}
	return both
}

// effects returns what the engine does about something.
func (r *runner) effects(s Step, something func(Step)) effects {
	asked, dryRuns, requests := r.tracker.Asked(), maps.Clone(r.dryRuns), r.world.Requests()
	something(s)
	r.wait(watched)
	e := effects{asked: map[invariant.Asking]int{}, requests: r.world.Requests() - requests, dryRuns: map[string]int{}}
	for of, times := range r.tracker.Asked() {
		if times > asked[of] {
			e.asked[of] = times - asked[of]
		}
	}
	for resource, times := range r.dryRuns {
		e.dryRuns[resource] = times - dryRuns[resource]
	}
	return e
}

// atEase lets all come to rest, and reports whether nothing happens then by itself.
func (r *runner) atEase(s Step) bool {
	r.rest(s)
	return r.result.Violation == nil && !r.disturbed() && r.restful() && !r.fails() && !r.finalizes() && !r.effects(s, func(Step) {}).any() && r.result.Violation == nil
}

// blameConfiguration checks what each of several changes of a configuration had the engine do.
func (r *runner) blameConfiguration(s Step, always effects) {
	related := mutates(s.How)
	for resource, times := range always.dryRuns {
		most := 0
		if kind := hooks.ByResource(groupOf(resource), resource); related && kind == s.Kind {
			most = len(r.tracker.Objects(kind))
		}
		if times > most {
			r.violatedf(invariant.UnrelatedIgnored, "a change of %s %s had children of %s tried %d times, and %d times is enough", s.How,
				hooks.Kinds[s.Kind].Resource, resource, times, most)
			return
		}
	}
	for of, times := range always.asked {
		if !related {
			r.violatedf(invariant.UnrelatedIgnored, "a change of %s %s had the %s hook of %s asked %d times about %s", s.How,
				hooks.Kinds[s.Kind].Resource, of.Hook, of.Controller, times, of.Parent)
			return
		}
	}
}

func groupOf(resource string) string {
	for _, k := range hooks.Kinds {
		if k.Resource == resource {
			return k.Group
		}
	}
	return ""
}

// reconfigure creates, changes or deletes a configuration.
func (r *runner) reconfigure(s Step) {
	if s.How == "certificate" {
		r.certify(s)
		return
	}
	resource := registrations[s.How][0]
	o := configuration(s.How, s.Kind, r.configurations)
	r.configurations++
	path := admissionGroup + resource
	name := path + "/" + hooks.Meta(o, "name")
	r.drew(ofConfigurations, s.How)
	switch there := r.configured[name]; {
	case !there:
		r.configured[name] = r.post(path, o).Code == http.StatusCreated
	case r.random.IntN(2) == 0:
		r.change(name, func(now map[string]any) { o["metadata"] = now["metadata"]; maps.Copy(now, o) })
	default:
		r.remove(name, "")
		delete(r.configured, name)
	}
	if mutates(s.How) {
		r.injecting[s.Kind] = r.configured[name]
	}
}

// mutates reports whether what a configuration is about changes the children of a kind.
func mutates(how string) bool { return how == "related" || how == "related-policy" }

const related = "related"

// certified returns the path of the configuration whose authority changes.
func certified(kind int) string {
	return admissionGroup + registrations[related][0] + "/" + related + "-" + hooks.Kinds[kind].Resource
}

// certify has a related configuration name another authority, which changes no stored value; it creates one if there is none.
func (r *runner) certify(s Step) {
	name := certified(s.Kind)
	if !r.configured[name] {
		s.How = related
		r.reconfigure(s)
	} else {
		r.drew(ofConfigurations, s.How)
		r.configurations++
		r.change(name, func(o map[string]any) {
			webhooks, _ := o["webhooks"].([]any) // It has one.
			for _, each := range webhooks {
				field(field(map[string]any{"": each}, ""), "clientConfig")["caBundle"] = base64.StdEncoding.EncodeToString([]byte(fmt.Sprint(r.configurations)))
			}
		})
	}
}
