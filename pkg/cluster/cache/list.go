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

package cache

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// ListMetadata reads the metadata of all objects of a resource from the API server, whether or not an informer watches them:
// it shows every write that ended before the call.
func (c *Cache) ListMetadata(ctx context.Context, r schema.GroupVersionResource) ([]*object.Object, error) {
	list, err := c.list(ctx, c.metadata.Get().AbsPath(Query{Resource: r}.path()...).SetHeader("Accept", metadataOnlyList))
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", r.GroupResource(), err)
	}
	return list.Items, nil
}
