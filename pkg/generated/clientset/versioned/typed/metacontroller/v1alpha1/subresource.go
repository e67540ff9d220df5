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

package v1alpha1

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/scheme"
)

// ControllerSubresources reads the subresources of controllers of one kind that take options of their own. docs/kubectl-plugin.md says what they
// tell. An error is one of the API server, as of the other methods.
type ControllerSubresources interface {
	// GetParents returns how a controller is doing with those of its parents that the options select: 100 at most, or options.Limit.
	// The list has a Continue when there are more.
	GetParents(ctx context.Context, name string, options v1alpha1.ControllerParentOptions) (*v1alpha1.ControllerParentList, error)
	// GetSyncs returns the recent syncs of the parents that the options select, the latest first: 100 at most, or options.Limit.
	GetSyncs(ctx context.Context, name string, options v1alpha1.ControllerSyncOptions) (*v1alpha1.ControllerSyncList, error)
	// GetRequest returns what hooks would be sent about the one parent that the options name.
	GetRequest(ctx context.Context, name string, options v1alpha1.HookRequestOptions) (*v1alpha1.HookRequestList, error)
}

// read reads a subresource that takes options of its own, which the generator of clients does not know.
func read[T runtime.Object](ctx context.Context, client rest.Interface, resource, name, subresource string, options runtime.Object, into T) (T, error) {
	err := client.Get().Resource(resource).Name(name).SubResource(subresource).VersionedParams(options, scheme.ParameterCodec).Do(ctx).Into(into)
	return into, err
}
