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
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// resource is a kind of objects as manifests and rules name it.
type resource struct {
	Kind, Version, Group, Resource string
}

// APIVersion is the group and version of objects.
func (r resource) APIVersion() string {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}.String()
}

// Singular is the kind in lower case.
func (r resource) Singular() string { return strings.ToLower(r.Kind) }

// Full is the resource as kubectl takes it, such as deployments.apps.
func (r resource) Full() string {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
}

var (
	version = regexp.MustCompile(`^v\d+((alpha|beta)\d+)?$`)
	kind    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
)

// checkName checks the name of the controller, of which a Service and a Namespace get their names as well.
func checkName(name string) error {
	if problems := validation.IsDNS1035Label(name); len(problems) > 0 {
		return fmt.Errorf("%q is no name for a controller: use lower case letters, digits and hyphens, and begin with a letter", name)
	}
	return nil
}

// parentOf reads KIND.GROUP or KIND.VERSION.GROUP, or KIND.VERSION for the core group of Kubernetes. The group of a kind that is known may be
// left out, that of a new kind may not.
func parentOf(text, plural string, exists bool) (resource, error) {
	name, group, _ := strings.Cut(text, ".")
	r := resource{Kind: name, Group: group, Version: "v1", Resource: plural}
	core := version.MatchString(group)
	if core {
		r.Version, r.Group = group, ""
	} else if first, rest, ok := strings.Cut(group, "."); ok && version.MatchString(first) {
		r.Version, r.Group = first, rest
	}
	if !kind.MatchString(r.Kind) {
		return r, fmt.Errorf("%q is not KIND.GROUP, such as Website.example.com: kinds begin with an upper case letter", text)
	}
	if known, ok := knownKind(r); ok && exists {
		if known.clusterScoped {
			return r, fmt.Errorf("init makes children in the namespace of their parent, and %s has none: "+
				"see the example default-network-policy of metacontroller-apiserver", r.Kind)
		}
		return known.resource, nil
	}
	problems := validation.IsDNS1123Subdomain(r.Group)
	switch {
	case core && exists:
	case len(problems) > 0 && exists:
		return r, fmt.Errorf("%q is not KIND.GROUP: write the group, such as HorizontalPodAutoscaler.autoscaling, "+
			"or the version alone for the core group, such as ResourceQuota.v1; see 'kubectl api-resources'", text)
	case len(problems) > 0 || !exists && !strings.Contains(r.Group, "."): // Groups without a dot are Kubernetes' own.
		return r, fmt.Errorf("%q is not KIND.GROUP: the group of a kind is a domain, such as example.com", text)
	}
	if r.Resource == "" {
		r.Resource = pluralOf(r.Singular())
	}
	if problems := validation.IsDNS1035Label(r.Resource); len(problems) > 0 {
		return r, fmt.Errorf("--plural: %q is no plural of a kind: use lower case letters and digits", r.Resource)
	}
	return r, nil
}

// knownKind finds a kind of Kubernetes itself, whose group may be left out.
func knownKind(r resource) (known, bool) {
	for _, k := range knownKinds() {
		if k.Kind == r.Kind && (k.Group == r.Group || r.Group == "") {
			return k, true
		}
	}
	return known{}, false
}

// childOf reads a resource that is known, with or without its group, or RESOURCE.VERSION.GROUP/KIND, or RESOURCE.VERSION/KIND for the core group.
func childOf(text string) (child, error) {
	var names []string
	for _, k := range knownKinds() {
		if k.desired == nil {
			continue
		}
		if text == k.Resource || text == k.Full() {
			return child{resource: k.resource, Method: k.method, State: k.state, desired: k.desired}, nil
		}
		names = append(names, k.Resource)
	}
	path, name, ok := strings.Cut(text, "/")
	parts := strings.SplitN(path, ".", 3)
	if len(parts) == 2 && version.MatchString(parts[1]) {
		parts = append(parts, "") // The core group has no name.
	}
	if !ok || len(parts) < 3 || !version.MatchString(parts[1]) || !kind.MatchString(name) {
		slices.Sort(names)
		return child{}, fmt.Errorf("%q is not known: it is one of %s; write others as RESOURCE.VERSION.GROUP/KIND, such as widgets.v1.example.com/Widget",
			text, strings.Join(names, ", "))
	}
	return child{
		resource: resource{Kind: name, Version: parts[1], Group: parts[2], Resource: parts[0]}, Method: inPlace, desired: map[string]any{"spec": map[string]any{}},
	}, nil
}

// examples are values of the types that a field may have.
func examples() map[string]any {
	return map[string]any{"string": exampleName, "integer": 1, "number": 1.5, "boolean": true}
}

// usual are the fields that children use.
func usual() []field { return []field{{"image", "string", "nginx:1.28"}, {"replicas", "integer", 2}} }

// fieldOf reads NAME:TYPE.
func fieldOf(text string) (field, error) {
	name, kind, _ := strings.Cut(text, ":")
	value, ok := examples()[kind]
	if !ok || !identifier.MatchString(name) {
		return field{}, fmt.Errorf("%q is not NAME:TYPE, such as html:string: TYPE is %s", text, strings.Join(slices.Sorted(maps.Keys(examples())), ", "))
	}
	for _, f := range usual() {
		if f.Name == name && f.Type != kind {
			return f, fmt.Errorf("%q: what children take from a field of this name is of type %s", text, f.Type)
		}
	}
	return field{name, kind, value}, nil
}

// pluralOf makes up the plural of a word as most words of English have it.
func pluralOf(word string) string {
	for _, end := range []string{"s", "x", "z", "ch", "sh"} {
		if strings.HasSuffix(word, end) {
			return word + "es"
		}
	}
	if before, ok := strings.CutSuffix(word, "y"); ok && before != "" && !strings.ContainsAny(before[len(before)-1:], "aeiou") {
		return before + "ies"
	}
	return word + "s"
}
