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

package metacontroller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Observation is a request with observed objects: a *CompositeRequest or a *DecoratorRequest.
type Observation interface {
	// observed returns the children or attachments, and the parent.
	observed() (ObjectMap, Object)
}

func (r *CompositeRequest) observed() (ObjectMap, Object) { return r.Children, r.Parent }

func (r *DecoratorRequest) observed() (ObjectMap, Object) { return r.Attachments, r.Object }

// Child returns one observed child or attachment, and nil if there is none. The kind is one of the keys of [ObjectMap], such as
// Deployment.apps/v1; another one is an error. The name may be namespace/name; without a namespace it is that of the parent.
func Child(request Observation, kind, name string) (Object, error) {
	objects, parent, err := ofKind(request, kind)
	if err != nil {
		return nil, err
	}
	metadata, _ := parent["metadata"].(map[string]any)
	if namespace, _ := metadata["namespace"].(string); namespace != "" {
		name = strings.TrimPrefix(name, namespace+"/")
		if object, ok := objects[namespace+"/"+name]; ok {
			return object, nil
		}
	}
	return objects[name], nil
}

// Children returns the observed children or attachments of a kind, which is as in [Child], in the order of their namespaces and names.
func Children(request Observation, kind string) ([]Object, error) {
	objects, _, err := ofKind(request, kind)
	list := make([]Object, 0, len(objects))
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		list = append(list, objects[key])
	}
	return list, err
}

func ofKind(request Observation, kind string) (objects map[string]Object, parent Object, err error) {
	kinds, parent := request.observed()
	objects, ok := kinds[kind]
	if !ok {
		return nil, nil, fmt.Errorf("the request has no %s, only %s: kinds are named Kind.version or Kind.group/version, "+
			"or the controller does not declare it, or the cluster does not serve it", kind,
			strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	return objects, parent, nil
}
