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

package related

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// parse reads "namespace/name a=1 b=2"; without a slash the object is cluster-scoped.
func parse(s string) *object.Object {
	fields := strings.Fields(s)
	metadata := map[string]any{"name": fields[0]}
	if namespace, name, ok := strings.Cut(fields[0], "/"); ok {
		metadata["namespace"], metadata["name"] = namespace, name
	}
	labels := map[string]string{}
	for _, label := range fields[1:] {
		k, v, _ := strings.Cut(label, "=")
		labels[k] = v
	}
	metadata["labels"] = labels
	encoded, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err)
	}
	o, err := object.Parse(encoded, object.ParseOptions{})
	if err != nil {
		panic(err)
	}
	return o
}

func place(o *object.Object) string { return strings.TrimPrefix(o.Namespace()+"/"+o.Name(), "/") }

// things is an informer of the tests. It counts how often it is walked.
type things struct {
	objects  []*object.Object
	unsynced bool
	lists    int
}

func informerOf(objects ...string) *things {
	i := &things{}
	for _, o := range objects {
		i.objects = append(i.objects, parse(o))
	}
	return i
}

func (i *things) HasSynced() bool { return !i.unsynced }

func (i *things) Get(namespace, name string) (*object.Object, bool) {
	for _, o := range i.objects {
		if o.Namespace() == namespace && o.Name() == name {
			return o, true
		}
	}
	return nil, false
}

func (i *things) Named(names []string) []*object.Object {
	i.lists++
	return i.wanted(func(o *object.Object) bool { return slices.Contains(names, o.Name()) })
}

func (i *things) Matching(namespace string, selector labels.Selector) []*object.Object {
	i.lists++
	return i.wanted(func(o *object.Object) bool {
		return (namespace == "" || o.Namespace() == namespace) && selector.Matches(o.LabelSet())
	})
}

func (i *things) wanted(want func(*object.Object) bool) []*object.Object {
	var out []*object.Object
	for _, o := range i.objects {
		if want(o) {
			out = append(out, o)
		}
	}
	return out
}

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deploys    = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

// served are the types that exist in the tests.
func served(_ context.Context, apiVersion, resource string) (Type, error) {
	for _, t := range []Type{
		{Resource: configMaps, Kind: "ConfigMap", Namespaced: true},
		{Resource: deploys, Kind: "Deployment", Namespaced: true},
		{Resource: nodes, Kind: "Node", Namespaced: false},
	} {
		if t.Resource.GroupVersion().String() == apiVersion && t.Resource.Resource == resource {
			return t, nil
		}
	}
	return Type{}, &missingError{apiVersion, resource}
}

type missingError struct{ apiVersion, resource string }

func (e *missingError) Error() string {
	return fmt.Sprintf("the cluster serves no %s in %s", e.resource, e.apiVersion)
}

func equals(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func expression(key string, op metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}
