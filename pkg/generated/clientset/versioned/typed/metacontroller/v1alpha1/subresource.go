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

	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/scheme"
)

// read reads a subresource that takes options of its own, which the generator of clients does not know.
func read[T runtime.Object](ctx context.Context, client rest.Interface, resource, name, subresource string, options runtime.Object, into T) (T, error) {
	err := client.Get().Resource(resource).Name(name).SubResource(subresource).VersionedParams(options, scheme.ParameterCodec).Do(ctx).Into(into)
	return into, err
}
