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

package tree

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// kinds has, for each resource of parents, the resources of children that they may have.
type kinds map[schema.GroupResource][]schema.GroupVersionResource

// kindsOf joins what controllers declare with what Kubernetes' own controllers create.
func kindsOf(controllers []controllerobject.Object) kinds {
	k := kinds{}
	for parent, children := range map[schema.GroupResource][]schema.GroupVersionResource{
		{Group: "apps", Resource: "deployments"}:  {{Group: "apps", Version: "v1", Resource: "replicasets"}},
		{Group: "apps", Resource: "replicasets"}:  {{Version: "v1", Resource: "pods"}},
		{Group: "apps", Resource: "statefulsets"}: {{Version: "v1", Resource: "pods"}},
		{Group: "apps", Resource: "daemonsets"}:   {{Version: "v1", Resource: "pods"}},
		{Group: "batch", Resource: "cronjobs"}:    {{Group: "batch", Version: "v1", Resource: "jobs"}},
		{Group: "batch", Resource: "jobs"}:        {{Version: "v1", Resource: "pods"}},
		{Resource: "replicationcontrollers"}:      {{Version: "v1", Resource: "pods"}},
		{Resource: "services"}:                    {{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}},
	} {
		k.add(parent, children...)
	}
	for _, object := range controllers {
		for _, parent := range object.Parents() {
			if resource, err := parent.GroupVersionResource(); err == nil {
				if object.Composite != nil {
					k.add(resource.GroupResource(), v1alpha1.SchemeGroupVersion.WithResource("controllerrevisions"))
				}
				for _, child := range object.Children() {
					if r, err := child.GroupVersionResource(); err == nil {
						k.add(resource.GroupResource(), r)
					}
				}
			}
		}
	}
	return k
}

// add adds children of a parent, each resource once.
func (k kinds) add(parent schema.GroupResource, children ...schema.GroupVersionResource) {
	for _, child := range children {
		if !slices.ContainsFunc(k[parent], func(r schema.GroupVersionResource) bool { return r.GroupResource() == child.GroupResource() }) {
			k[parent] = append(k[parent], child)
		}
	}
}
