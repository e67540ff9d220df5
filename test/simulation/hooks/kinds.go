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

// Group is the API group of the custom kinds.
const Group = "sim.example.com"

// Kind is a kind of objects that histories are about.
type Kind struct {
	// Name is the kind, Resource its plural name, Group its API group.
	Name, Resource, Group string
	// Versions are the versions that may be served. The first one is stored.
	Versions []string
	// Namespaced says that objects live in namespaces, HasStatus that there is a status subresource.
	Namespaced, HasStatus bool
	// Letter stands for the kind in the names of children.
	Letter string
}

// Indexes of Kinds.
const (
	Thing = iota
	Realm
	Gadget
	ConfigMap
	// Deployment is a kind of children alone.
	Deployment
)

// Parents is the number of kinds that may be parents or targets: the first ones.
const Parents = Deployment

// Kinds are all kinds of histories, which refer to them by their index.
var Kinds = []Kind{
	{Name: "Thing", Resource: "things", Group: Group, Versions: []string{"v1"}, Namespaced: true, HasStatus: true, Letter: "t"},
	{Name: "Realm", Resource: "realms", Group: Group, Versions: []string{"v1"}, HasStatus: true, Letter: "r"},
	{Name: "Gadget", Resource: "gadgets", Group: Group, Versions: []string{"v1", "v2"}, Namespaced: true, HasStatus: true, Letter: "g"},
	{Name: "ConfigMap", Resource: "configmaps", Versions: []string{"v1"}, Namespaced: true, Letter: "m"},
	{Name: "Deployment", Resource: "deployments", Group: "apps", Versions: []string{"v1"}, Namespaced: true, HasStatus: true, Letter: "p"},
}

// Namespaces are where histories happen.
var Namespaces = []string{"ns0", "ns1"}

// APIVersion returns the apiVersion of a kind in a version.
func (k Kind) APIVersion(version string) string {
	if k.Group == "" {
		return version
	}
	return k.Group + "/" + version
}

// Path returns the path of an object of the kind, or of all objects in the namespace if name is empty. An empty namespace is left out.
func (k Kind) Path(version, namespace, name string) string {
	path := "/apis/" + k.Group + "/" + version
	if k.Group == "" {
		path = "/api/" + version
	}
	if k.Namespaced && namespace != "" {
		path += "/namespaces/" + namespace
	}
	path += "/" + k.Resource
	if name != "" {
		path += "/" + name
	}
	return path
}

// ByResource returns the index of the kind with a resource, -1 if there is none.
func ByResource(group, resource string) int {
	for i, k := range Kinds {
		if k.Group == group && k.Resource == resource {
			return i
		}
	}
	return -1
}

// ByName returns the index of a kind of an API group, -1 if there is none.
func ByName(group, name string) int {
	for i, k := range Kinds {
		if k.Group == group && k.Name == name {
			return i
		}
	}
	return -1
}
