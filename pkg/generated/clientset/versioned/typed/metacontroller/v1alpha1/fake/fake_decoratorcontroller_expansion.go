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

package fake

import (
	"context"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// GetParents implements ControllerSubresources. Without a reactor there are no parents.
func (c *fakeDecoratorControllers) GetParents(_ context.Context, name string, options v1alpha1.ControllerParentOptions) (*v1alpha1.ControllerParentList, error) {
	return read(c.Fake, c.Resource(), name, "parents", options, &v1alpha1.ControllerParentList{})
}

// GetSyncs implements ControllerSubresources. Without a reactor there are no syncs.
func (c *fakeDecoratorControllers) GetSyncs(_ context.Context, name string, options v1alpha1.ControllerSyncOptions) (*v1alpha1.ControllerSyncList, error) {
	return read(c.Fake, c.Resource(), name, "syncs", options, &v1alpha1.ControllerSyncList{})
}

// GetRequest implements ControllerSubresources. Without a reactor there are no requests.
func (c *fakeDecoratorControllers) GetRequest(_ context.Context, name string, options v1alpha1.HookRequestOptions) (*v1alpha1.HookRequestList, error) {
	return read(c.Fake, c.Resource(), name, "request", options, &v1alpha1.HookRequestList{})
}
