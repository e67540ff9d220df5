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

// known is a kind of Kubernetes itself.
type known struct {
	resource

	// method is how a child of the kind is changed.
	method string
	// desired is the child without apiVersion, kind and metadata; nil for what init makes no children of.
	desired       map[string]any
	clusterScoped bool
}

const (
	inPlace  = "InPlace"
	recreate = "Recreate"
)

// Variables of a hook, for which each parent has values.
const (
	varName     = variable("name")
	varImage    = variable("image")
	varReplicas = variable("replicas")
)

// knownKinds are the kinds that init knows. Their desired state is short, valid, and uses the variables of the hook.
func knownKinds() []known {
	labels := map[string]any{"app": varName}
	selector := map[string]any{"matchLabels": labels}
	container := []any{map[string]any{"name": "main", "image": varImage}}
	template := map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": container}}
	once := map[string]any{"template": map[string]any{"spec": map[string]any{"containers": container, "restartPolicy": "Never"}}}
	spec := func(fields map[string]any) map[string]any { return map[string]any{"spec": fields} }
	return []known{
		{resource{"ConfigMap", "v1", "", "configmaps"}, inPlace, map[string]any{"data": map[string]any{"image": varImage}}, false},
		{resource{"Secret", "v1", "", "secrets"}, inPlace, map[string]any{"type": "Opaque", "stringData": map[string]any{"image": varImage}}, false},
		{resource{"ServiceAccount", "v1", "", "serviceaccounts"}, inPlace, map[string]any{}, false},
		{resource{"Pod", "v1", "", "pods"}, recreate, spec(map[string]any{"containers": container}), false},
		{resource{"Service", "v1", "", "services"}, inPlace, spec(map[string]any{
			"selector": labels, "ports": []any{map[string]any{"name": "http", "port": 80}},
		}), false},
		{resource{"PersistentVolumeClaim", "v1", "", "persistentvolumeclaims"}, inPlace, spec(map[string]any{
			"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
		}), false},
		{resource{"Deployment", "v1", "apps", "deployments"}, inPlace, spec(map[string]any{
			"replicas": varReplicas, "selector": selector, "template": template,
		}), false},
		{resource{"StatefulSet", "v1", "apps", "statefulsets"}, inPlace, spec(map[string]any{
			"replicas": varReplicas, "selector": selector, "serviceName": varName, "template": template,
		}), false},
		{resource{"DaemonSet", "v1", "apps", "daemonsets"}, inPlace, spec(map[string]any{"selector": selector, "template": template}), false},
		{resource{"Job", "v1", "batch", "jobs"}, recreate, spec(once), false},
		{resource{"CronJob", "v1", "batch", "cronjobs"}, inPlace, spec(map[string]any{
			"schedule": "0 * * * *", "jobTemplate": map[string]any{"spec": once},
		}), false},
		{resource{"NetworkPolicy", "v1", "networking.k8s.io", "networkpolicies"}, inPlace, spec(map[string]any{
			"podSelector": selector, "policyTypes": []any{"Ingress"},
		}), false},
		{resource{"PodDisruptionBudget", "v1", "policy", "poddisruptionbudgets"}, inPlace, spec(map[string]any{
			"selector": selector, "maxUnavailable": 1,
		}), false},
		{resource{"Namespace", "v1", "", "namespaces"}, "", nil, true},
		{resource{"Node", "v1", "", "nodes"}, "", nil, true},
	}
}
