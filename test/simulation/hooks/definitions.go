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

import "strings"

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
