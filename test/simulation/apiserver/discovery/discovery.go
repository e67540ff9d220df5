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
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
)

// Catalog is what a server serves.
type Catalog struct {
	// Kinds are sorted by group and resource.
	Kinds []*kinds.Kind
	// Ending has those whose definition is being deleted.
	Ending map[*kinds.Kind]bool
}

// content returns what the body of a path says, false if it is not served. The path begins with a slash.
func (c Catalog) content(path string) (body any, found bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case path == "/version":
		return version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"}, true
	case path == "/api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}, true
	case path == "/apis":
		return c.groups(), true
	case parts[0] == "api" && len(parts) == 2:
		return c.resources("", parts[1])
	case parts[0] == "apis" && len(parts) == 2:
		return c.group(parts[1])
	case parts[0] == "apis" && len(parts) == 3:
		return c.resources(parts[1], parts[2])
	case parts[0] == "openapi" && len(parts) > 1 && parts[1] == "v3":
		return c.openAPI(parts[2:])
	}
	return nil, false
}

func (c Catalog) groups() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for i, k := range c.Kinds {
		if k.Group == "" || i > 0 && c.Kinds[i-1].Group == k.Group {
			continue
		}
		if g, ok := c.describe(k.Group); ok {
			list.Groups = append(list.Groups, *g)
		}
	}
	return list
}

func (c Catalog) group(name string) (any, bool) {
	g, ok := c.describe(name)
	if !ok {
		return nil, false
	}
	g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return g, true
}

// describe returns the versions of a group, the preferred one first.
func (c Catalog) describe(name string) (*metav1.APIGroup, bool) {
	var versions []string
	for _, k := range c.Kinds {
		for _, v := range k.Versions {
			if k.Group == name && v.Served && !slices.Contains(versions, v.Name) {
				versions = append(versions, v.Name)
			}
		}
	}
	if len(versions) == 0 || name == "" {
		return nil, false
	}
	slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	g := &metav1.APIGroup{Name: name}
	for _, v := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	g.PreferredVersion = g.Versions[0]
	return g, true
}

func (c Catalog) resources(group, name string) (any, bool) {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: strings.TrimPrefix(group+"/"+name, "/"),
	}
	for _, k := range c.Kinds {
		if v := k.Version(name); k.Group == group && v != nil && v.Served {
			list.APIResources = append(list.APIResources, describe(v, c.Ending[k])...)
		}
	}
	return list, len(list.APIResources) > 0
}

func describe(v *kinds.Version, ending bool) []metav1.APIResource {
	k := v.Kind
	verbs := metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	if !k.Custom {
		verbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	}
	if k.Singly {
		verbs = slices.DeleteFunc(verbs, func(v string) bool { return v == "deletecollection" })
	}
	if ending {
		verbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
	}
	all := []metav1.APIResource{{
		Name: k.Plural, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind, Verbs: verbs,
		ShortNames: k.ShortNames, Categories: k.Categories,
	}}
	for _, sub := range v.Subresources {
		all = append(all, metav1.APIResource{
			Name: k.Plural + "/" + sub, Namespaced: k.Namespaced, Kind: k.Kind, Verbs: metav1.Verbs{"get", "patch", "update"},
		})
	}
	for _, i := range k.Inspections {
		all = append(all, metav1.APIResource{Name: k.Plural + "/" + i.Name, Namespaced: k.Namespaced, Kind: i.Kind, Verbs: metav1.Verbs{i.Verb}})
	}
	return all
}

// openAPI returns the index of documents, or the document of a group-version.
func (c Catalog) openAPI(path []string) (any, bool) {
	if len(path) == 0 {
		return c.index(), true
	}
	var group, name string
	switch {
	case path[0] == "api" && len(path) == 2:
		name = path[1]
	case path[0] == "apis" && len(path) == 3:
		group, name = path[1], path[2]
	default:
		return nil, false
	}
	schemas := map[string]any{}
	for _, k := range c.Kinds {
		if v := k.Version(name); k.Group == group && v != nil && v.Served {
			v.Schemas(schemas)
		}
	}
	if len(schemas) == 0 {
		return nil, false
	}
	return map[string]any{
		"openapi": "3.0.0", "info": map[string]any{"title": "Kubernetes", "version": "v1.37.2"}, "paths": map[string]any{},
		"components": map[string]any{"schemas": schemas},
	}, true
}

func (c Catalog) index() any {
	paths := map[string]any{}
	for _, k := range c.Kinds {
		for _, v := range k.Versions {
			path := "apis/" + k.Group + "/" + v.Name
			if k.Group == "" {
				path = "api/" + v.Name
			}
			if v.Served {
				paths[path] = map[string]any{"serverRelativeURL": "/openapi/v3/" + path}
			}
		}
	}
	return map[string]any{"paths": paths}
}

// known are the Published of all catalogs, by what they serve: servers serve the same again and again, and documents are large.
var known sync.Map

// Published are the bodies of a catalog as they are sent, each encoded once in a process.
type Published struct {
	catalog Catalog
	bodies  sync.Map
}

// body is the JSON of a path; nil if the path is not served.
type body []byte

// Publish returns the bodies of a catalog, which must not be modified any more.
func (c Catalog) Publish() *Published {
	var key strings.Builder
	for _, k := range c.Kinds {
		// Kinds are made once for each definition, and never forgotten.
		fmt.Fprintf(&key, "%p %t,", k, c.Ending[k])
	}
	published, _ := known.LoadOrStore(key.String(), &Published{catalog: c})
	return published.(*Published) //nolint:forcetypeassert // Nothing else is stored.
}

// Body returns the body of a path, false if it is not served. The path begins with a slash. The body must not be modified.
func (p *Published) Body(path string) ([]byte, bool) {
	encoded, ok := p.bodies.Load(path)
	if !ok {
		encoded, _ = p.bodies.LoadOrStore(path, p.catalog.encode(path))
	}
	b := encoded.(body) //nolint:forcetypeassert // Nothing else is stored.
	return b, b != nil
}

func (c Catalog) encode(path string) body {
	content, found := c.content(path)
	if !found {
		return nil
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("encoding a %T: %v", content, err)) //nolint:forbidigo // It is an error of the program.
	}
	return encoded
}
