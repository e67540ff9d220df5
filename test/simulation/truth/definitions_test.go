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

package truth_test

import (
	"fmt"
	"strings"
)

// thingSchema is the schema of Things in version v1.
const thingSchema = `{"type":"object","properties":{
 "spec":{"type":"object","required":["mode"],"properties":{
  "mode":{"type":"string","enum":["A","B"],"default":"A"},
  "replicas":{"type":"integer","minimum":0,"default":1},
  "name":{"type":"string","pattern":"^[a-z]+$","maxLength":8},
  "port":{"x-kubernetes-int-or-string":true},
  "tags":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},
  "items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
   "items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"value":{"type":"string"},"weight":{"type":"integer","default":5}}}},
  "order":{"type":"array","items":{"type":"integer"},"x-kubernetes-list-type":"atomic"},
  "plain":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}}},
  "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
  "nested":{"type":"object","properties":{"deep":{"type":"string","default":"x"},"ratio":{"type":"number"},"on":{"type":"boolean"}}},
  "nullable":{"type":"string","nullable":true},
  "limits":{"type":"object","additionalProperties":{"type":"string"}},
  "whole":{"type":"object","additionalProperties":{"type":"string"},"x-kubernetes-map-type":"atomic"},
  "template":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}},
 "status":{"type":"object","properties":{"phase":{"type":"string","enum":["Ready","Failed"]},"observed":{"type":"integer"},
  "conditions":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"],
   "items":{"type":"object","required":["type"],"properties":{"type":{"type":"string"},"status":{"type":"string"}}}}}}}}`

// oldSchema is that of version v1beta1.
const oldSchema = `{"type":"object","properties":{
 "spec":{"type":"object","properties":{"replicas":{"type":"integer","default":2},"legacy":{"type":"string","default":"yes"},
  "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
 "status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`

const openSchema = `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`

// group is that of the custom resources which rows share.
const group = "truth.example.com"

var sharedDefinitions = []string{
	definition(group, "Thing", "Namespaced",
		version("v1", true, true, "status", thingSchema), version("v1beta1", true, false, "status", oldSchema)),
	definition(group, "Plain", "Namespaced", version("v1", true, true, "", openSchema)),
	definition(group, "ClusterThing", "Cluster", version("v1", true, true, "status", openSchema)),
}

// definition returns a CustomResourceDefinition.
func definition(group, kind, scope string, versions ...string) string {
	plural := strings.ToLower(kind) + "s"
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.%[2]s"},
"spec":{"group":%[2]q,"names":{"kind":%[3]q,"plural":%[1]q},"scope":%[4]q,"versions":[%[5]s]}}`,
		plural, group, kind, scope, strings.Join(versions, ",\n"))
}

func version(name string, served, storage bool, subresource, schema string) string {
	subresources := "{}"
	if subresource != "" {
		subresources = fmt.Sprintf(`{%q:{}}`, subresource)
	}
	return fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,"subresources":%s,"schema":{"openAPIV3Schema":%s}}`, name, served, storage, subresources, schema)
}

// manifests joins JSON documents into YAML.
func manifests(documents []string) string { return strings.Join(documents, "\n---\n") }

var (
	things     = in(group+"/v1", "things")
	oldThings  = in(group+"/v1beta1", "things")
	plains     = in(group+"/v1", "plains")
	configMaps = in("v1", "configmaps")
	secrets    = in("v1", "secrets")
	wholes     = "/apis/" + group + "/v1/clusterthings"
)

// thing returns a Thing with a spec.
func thing(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Thing","metadata":{"name":%q},"spec":%s}`, group, name, spec)
}

func plain(name, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Plain","metadata":{"name":%q}%s}`, group, name, rest)
}

func configMap(name, data string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":%s}`, name, data)
}
