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

package discovery

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// mutation is what a webhook or a policy says of the objects that it changes.
type mutation struct {
	// rules name the resources, and limits, where there are any, which of these.
	rules, limits []any
}

// concern reports whether one of the mutations may change an object of a resource when it is created or updated. The versions and the
// objects that a rule selects are not looked at: API servers match a request in equivalent versions, too.
func concern(mutations []mutation, resource schema.GroupResource) bool {
	named := func(rule any) bool { return names(rule, resource) }
	return slices.ContainsFunc(mutations, func(m mutation) bool {
		return slices.ContainsFunc(m.rules, named) && (len(m.limits) == 0 || slices.ContainsFunc(m.limits, named))
	})
}

// names reports whether a rule names a resource, as API servers match rules.
func names(rule any, resource schema.GroupResource) bool {
	content, _ := rule.(map[string]any)
	list := func(field string) []string {
		texts, _, _ := unstructured.NestedStringSlice(content, field) // A rule that is not valid is not stored.
		return texts
	}
	writes := slices.ContainsFunc(list("operations"), func(operation string) bool {
		return operation == "*" || operation == "CREATE" || operation == "UPDATE"
	})
	groups := list("apiGroups")
	return writes && (slices.Contains(groups, "*") || slices.Contains(groups, resource.Group)) &&
		slices.ContainsFunc(list("resources"), func(name string) bool {
			name, sub, isSub := strings.Cut(name, "/")
			return (name == "*" || name == resource.Resource) && (!isSub || sub == "*")
		})
}

// changedWebhooks returns the webhooks of a configuration, of both states, that an event changes. Webhooks are called in their order.
func changedWebhooks(e cache.Event) []mutation {
	before, after := webhooksOf(e.Old), webhooksOf(e.New)
	var changed []mutation
	for i := range max(len(before), len(after)) {
		var pair []any
		for _, list := range [][]any{before, after} {
			if i < len(list) {
				pair = append(pair, list[i])
			}
		}
		if len(pair) == 2 && reflect.DeepEqual(pair[0], pair[1]) {
			continue
		}
		for _, each := range pair {
			webhook, _ := each.(map[string]any)
			changed = append(changed, mutation{rules: listIn(webhook, "rules")})
		}
	}
	return changed
}

// webhooksOf returns the webhooks of a configuration without the CA bundles, which say whom the API server trusts and not what it asks.
func webhooksOf(o *object.Object) []any {
	webhooks := listIn(contentOf(o), "webhooks")
	for _, each := range webhooks {
		webhook, _ := each.(map[string]any)
		unstructured.RemoveNestedField(webhook, "clientConfig", "caBundle")
	}
	return webhooks
}

// changedPolicy returns what the policy of an event changes before and after it, if that is not the same.
func changedPolicy(e cache.Event) []mutation {
	before, after := specOf(e.Old), specOf(e.New)
	if reflect.DeepEqual(before, after) {
		return nil
	}
	return []mutation{{rules: policyRules(before)}, {rules: policyRules(after)}}
}

// changedBinding returns what the policy of a binding changes before and after an event, if that is not the same. Without its policy a
// binding does nothing; a policy that comes later is a change of its own.
func changedBinding(e cache.Event, policies *cache.Informer) []mutation {
	before, after := specOf(e.Old), specOf(e.New)
	if reflect.DeepEqual(before, after) {
		return nil
	}
	var changed []mutation
	for _, binding := range []map[string]any{before, after} {
		name, _, _ := unstructured.NestedString(binding, "policyName") // It is required.
		if policy, ok := policies.Get("", name); ok {
			changed = append(changed, mutation{policyRules(specOf(policy)), listIn(binding, "matchResources", "resourceRules")})
		}
	}
	return changed
}

func policyRules(policy map[string]any) []any {
	return listIn(policy, "matchConstraints", "resourceRules")
}

// sameService reports whether an APIService has the same group-version served in the same way after an event.
func sameService(e cache.Event) bool {
	before, after := specOf(e.Old), specOf(e.New)
	unstructured.RemoveNestedField(before, "caBundle")
	unstructured.RemoveNestedField(after, "caBundle")
	return e.Old != nil && e.New != nil && reflect.DeepEqual(before, after)
}

// specOf returns the spec of an object, nil for none.
func specOf(o *object.Object) map[string]any {
	spec, _ := contentOf(o)["spec"].(map[string]any)
	return spec
}

// contentOf decodes an object. What is in a cache can be decoded.
func contentOf(o *object.Object) map[string]any {
	if o == nil {
		return nil
	}
	content, _ := o.Decode()
	return content
}

// listIn returns a list in a decoded object, nil for none.
func listIn(content map[string]any, path ...string) []any {
	value, _, _ := unstructured.NestedFieldNoCopy(content, path...)
	list, _ := value.([]any)
	return list
}
