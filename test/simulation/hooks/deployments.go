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
			if has := within(o, "spec", "selector", "matchLabels"); text(o, "kind") == Kinds[Deployment].Name && Meta(o, "name") == name && len(has) > 0 {
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
	spec := within(deployment, "spec")
	replicas, available, status := number(spec, "replicas"), int64(0), "False"
	if done {
		available, status = replicas, "True"
	}
	rollout := map[string]any{
		"observedGeneration": number(within(deployment, "metadata"), "generation"),
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
	status := within(deployment, "status")
	if number(status, "observedGeneration") != number(within(deployment, "metadata"), "generation") {
		return false
	}
	conditions, _ := status["conditions"].([]any) // Absent: none.
	for _, each := range conditions {
		condition, _ := each.(map[string]any) // The API server has validated it.
		if text(condition, "type") == Available {
			return text(condition, "status") == "True"
		}
	}
	return false
}
