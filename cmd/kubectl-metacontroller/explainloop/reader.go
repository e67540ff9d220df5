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

package explainloop

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// reader reads objects of any kind.
type reader struct {
	mapper meta.RESTMapper
	client dynamic.Interface
}

func newReader(c *connection.Connection) (*reader, error) {
	mapper, err := c.Mapper()
	if err != nil {
		return nil, err
	}
	client, err := c.Objects()
	return &reader{mapper: mapper, client: client}, err
}

// kindOf is the kind of a parent.
func (r *reader) kindOf(p v1alpha1.ParentReference) (string, error) {
	kind, err := r.mapper.KindFor(schema.GroupVersionResource{Group: p.Group, Resource: p.Resource})
	if err != nil {
		return "", fmt.Errorf("%w: list what the cluster serves with 'kubectl api-resources'", err)
	}
	return kind.Kind, nil
}
