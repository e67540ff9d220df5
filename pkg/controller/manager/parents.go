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

package manager

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/supervisor"
)

// parents implements supervisor.Parents.
type parents struct {
	cluster *cluster.Cluster
}

// Finalized implements supervisor.Parents. The resource may be served in another version than the definition named.
func (p parents) Finalized(ctx context.Context, resource schema.GroupResource, finalizer string) ([]supervisor.FinalizedParent, error) {
	served, err := p.cluster.Discovery.Serving(ctx, resource)
	if _, missing := errors.AsType[*discovery.NotFoundError](err); missing {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := p.cluster.Cache.ListMetadata(ctx, served.GroupVersionResource)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := parent.Finalizer{Name: finalizer}
	var list []supervisor.FinalizedParent
	for _, o := range all {
		if !f.On(o) {
			continue
		}
		target := client.Target{Resource: served.GroupVersionResource, Namespace: o.Namespace(), Name: o.Name()}
		list = append(list, supervisor.FinalizedParent{
			Key: parent.Key{Resource: resource, Namespace: o.Namespace(), Name: o.Name()},
			UID: o.UID(),
			Release: func(ctx context.Context) error {
				if _, _, err := f.Remove(ctx, p.cluster.Client, target, o); !apierrors.IsNotFound(err) {
					return err
				}
				return nil
			},
		})
	}
	return list, nil
}
