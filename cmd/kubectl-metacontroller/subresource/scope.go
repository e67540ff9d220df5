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

package subresource

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// scope tells where the parents of a controller may be.
type scope struct {
	// namespaced are the resources that have namespaces, and clusterScoped those that have none.
	namespaced, clusterScoped []schema.GroupVersionResource
	// unknown reports whether there are others, of which the cluster does not say it.
	unknown bool
}

// scopeOf returns where parents of a controller may be; a resource may be named.
func scopeOf(c *connection.Connection, object controllerobject.Object, resource string) (s scope) {
	mapper, err := c.Mapper()
	if err != nil {
		return scope{unknown: true} // Whoever asks next says it.
	}
	for _, rule := range object.Parents() {
		gvr, err := rule.GroupVersionResource()
		if err != nil {
			s.unknown = true
			continue
		}
		if resource != "" && gvr.GroupResource().String() != resource {
			continue
		}
		switch mapping, err := connection.MappingOf(mapper, gvr); {
		case err != nil:
			s.unknown = true
		case mapping.Scope.Name() == meta.RESTScopeNameNamespace:
			s.namespaced = append(s.namespaced, gvr)
		default:
			s.clusterScoped = append(s.clusterScoped, gvr)
		}
	}
	return s
}

// inNamespaces reports whether parents may be in namespaces. What the cluster does not serve may be.
func (s scope) inNamespaces() bool { return s.unknown || len(s.namespaced) > 0 }

// outside returns the cluster-scoped resource of an object with a name, if the caller sees none of the name in the namespace; empty if there is
// none either. What he may not see, the server says.
func (s scope) outside(ctx context.Context, client dynamic.Interface, namespace, name string) (string, error) {
	for _, resource := range s.namespaced {
		if _, err := client.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
			return "", nil
		}
	}
	var found, names []string
	for _, resource := range s.clusterScoped {
		if _, err := client.Resource(resource).Get(ctx, name, metav1.GetOptions{}); err == nil {
			found = append(found, resource.GroupResource().String())
			names = append(names, resource.GroupResource().String()+"/"+name)
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%q is the name of several parents, %s: choose its resource with --resource", name, strings.Join(names, ", "))
}
