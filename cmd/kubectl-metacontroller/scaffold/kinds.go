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

package scaffold

import (
	"slices"
	"strings"
)

// known is a kind of Kubernetes itself.
type known struct {
	resource

	// method is how a child of the kind is changed.
	method string
	// desired is the child without apiVersion, kind and metadata; nil for what init makes no children of.
	desired map[string]any
	// state is the field of status that says how such a child is, if its kind has one.
	state         field
	clusterScoped bool
}

// field is a field of a definition.
type field struct {
	Name, Type string
	// Value is one that it may have, in the example.
	Value any
}

// Column is its name above a column of a table.
func (f field) Column() string { return strings.ToUpper(f.Name[:1]) + f.Name[1:] }

const (
	inPlace  = "InPlace"
	recreate = "Recreate"
)

// Variables of a hook, for which each parent has values. The selector, and its labels, are those of Pods that a child is for.
const (
	varName     = variable("name")
	varImage    = variable("image")
	varReplicas = variable("replicas")
	varSelector = variable("selector")
	varSelected = variable(`selector["matchLabels"]`)
)

// workload tells of a resource of parents whether its objects have Pods, and a selector of these in spec.selector.
func workload(r resource) bool {
	return r.Group == "apps" && slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"}, r.Kind) || r.Group == "batch" && r.Kind == "Job"
}

// ownSelector has the values of variables where the Pods are those of children with the name.
func ownSelector() map[variable]any {
	labels := map[string]any{"app": varName}
	return map[variable]any{
		varName: varName, varImage: varImage, varReplicas: varReplicas,
		varSelector: map[string]any{"matchLabels": labels}, varSelected: labels,
	}
}

// knownKinds are the kinds that init knows. Their desired state is short, valid, and uses the variables of the hook.
func knownKinds() []known {
	labels := map[string]any{"app": varName}
	selector := map[string]any{"matchLabels": labels}
	container := []any{map[string]any{"name": "main", "image": varImage}}
	template := map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": container}}
	once := map[string]any{"template": map[string]any{"spec": map[string]any{"containers": container, "restartPolicy": "Never"}}}
	none, ready := field{}, field{"readyReplicas", "integer", 1}
	spec := func(fields map[string]any) map[string]any { return map[string]any{"spec": fields} }
	return []known{
		{resource{"ConfigMap", "v1", "", "configmaps"}, inPlace, map[string]any{"data": map[string]any{"image": varImage}}, none, false},
		{resource{"Secret", "v1", "", "secrets"}, inPlace, map[string]any{"type": "Opaque", "stringData": map[string]any{"image": varImage}}, none, false},
		{resource{"ServiceAccount", "v1", "", "serviceaccounts"}, inPlace, map[string]any{}, none, false},
		{resource{"Pod", "v1", "", "pods"}, recreate, spec(map[string]any{"containers": container}), field{"phase", "string", "Running"}, false},
		{resource{"Service", "v1", "", "services"}, inPlace, spec(map[string]any{
			"selector": varSelected, "ports": []any{map[string]any{"name": "http", "port": 80}},
		}), none, false},
		{resource{"PersistentVolumeClaim", "v1", "", "persistentvolumeclaims"}, inPlace, spec(map[string]any{
			"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
		}), field{"phase", "string", "Bound"}, false},
		{resource{"Deployment", "v1", "apps", "deployments"}, inPlace, spec(map[string]any{
			"replicas": varReplicas, "selector": selector, "template": template,
		}), ready, false},
		{resource{"StatefulSet", "v1", "apps", "statefulsets"}, inPlace, spec(map[string]any{
			"replicas": varReplicas, "selector": selector, "serviceName": varName, "template": template,
		}), ready, false},
		{resource{"DaemonSet", "v1", "apps", "daemonsets"}, inPlace, spec(map[string]any{"selector": selector, "template": template}), field{"numberReady", "integer", 1}, false},
		{resource{"Job", "v1", "batch", "jobs"}, recreate, spec(once), field{"succeeded", "integer", 1}, false},
		{resource{"CronJob", "v1", "batch", "cronjobs"}, inPlace, spec(map[string]any{
			"schedule": "0 * * * *", "jobTemplate": map[string]any{"spec": once},
		}), none, false},
		{resource{"NetworkPolicy", "v1", "networking.k8s.io", "networkpolicies"}, inPlace, spec(map[string]any{
			"podSelector": varSelector, "policyTypes": []any{"Ingress"},
		}), none, false},
		{resource{"PodDisruptionBudget", "v1", "policy", "poddisruptionbudgets"}, inPlace, spec(map[string]any{
			"selector": varSelector, "maxUnavailable": 1,
		}), none, false},
		{resource{"Endpoints", "v1", "", "endpoints"}, "", nil, none, false},
		{resource{"Namespace", "v1", "", "namespaces"}, "", nil, none, true},
		{resource{"Node", "v1", "", "nodes"}, "", nil, none, true},
	}
}
