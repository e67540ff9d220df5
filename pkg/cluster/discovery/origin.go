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
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Origin is where the kinds of a group-version come from.
type Origin int

// Origins of kinds.
const (
	// Unknown: the cluster does not say, or may not be asked.
	Unknown Origin = iota
	// BuiltIn kinds are the kube-apiserver's own.
	BuiltIn
	// Custom kinds are defined by CustomResourceDefinitions.
	Custom
	// Aggregated kinds are those of another API server.
	Aggregated
)

// automanagedLabel is on APIServices that kube-apiserver itself makes. Its value says for which kinds.
const automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"

// Origin returns where the kinds of a group-version come from. It costs no request.
func (d *Discovery) Origin(version schema.GroupVersion) Origin {
	if !strings.Contains(version.Group, ".") {
		return BuiltIn // The group of a CustomResourceDefinition has a dot.
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.origin(version)
}

// origin is called with the lock held.
func (d *Discovery) origin(version schema.GroupVersion) Origin {
	o, ok := d.definition(apiServiceResource, version.Version+"."+version.Group)
	if !ok {
		return Unknown
	}
	switch value, _ := o.Label(automanagedLabel); value {
	case "true":
		return Custom
	case "onstart":
		return BuiltIn
	}
	return Aggregated
}

// Definition returns a number that changes when the CustomResourceDefinition of a resource is edited, and once more when the edit is served
// for certain. It is 0 for a resource without one.
func (d *Discovery) Definition(resource schema.GroupResource) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, ok := d.definition(crdResource, resource.String())
	if !ok {
		return 0
	}
	const first = 1 // What is defined for the first time is served already, since its objects are there.
	number := 2 * o.Generation()
	if g := d.groups[resource.Group]; o.Generation() > first && g != nil && g.repeating {
		number--
	}
	return number
}

// definition returns an object that defines kinds, unless no event would show a change of it. It is called with the lock held.
func (d *Discovery) definition(kind schema.GroupVersionResource, name string) (*object.Object, bool) {
	if d.now("") < 0 {
		return nil, false
	}
	for _, definitions := range d.definitions {
		if definitions.Query().Resource == kind {
			return definitions.Get("", name)
		}
	}
	return nil, false
}
