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

package engine

import (
	"context"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// The requests and responses of hooks are those of webhooks; see [hook].
type (
	// CompositeRequest is what the sync and finalize hooks of a [Composite] get.
	CompositeRequest = hook.CompositeRequest
	// CompositeResponse is what they return.
	CompositeResponse = hook.CompositeResponse
	// DecoratorRequest is what the sync and finalize hooks of a [Decorator] get.
	DecoratorRequest = hook.DecoratorRequest
	// DecoratorResponse is what they return.
	DecoratorResponse = hook.DecoratorResponse
	// CustomizeRequest is what the customize hook of either gets.
	CustomizeRequest = hook.CustomizeRequest
	// CustomizeResponse is what it returns.
	CustomizeResponse = hook.CustomizeResponse
	// RelatedResourceRule selects related objects in a [CustomizeResponse].
	RelatedResourceRule = hook.RelatedResourceRule
	// Object is any Kubernetes object; [As] makes a typed one of it.
	Object = hook.Object
	// ObjectMap holds observed children and related objects; its method Find finds one.
	ObjectMap = hook.ObjectMap
)

// A CompositeFunc is the sync or the finalize hook of a [Composite]; the request says which by Finalizing. It is called by several goroutines at
// once. Its context ends with the hook's timeout, and when the engine stops: a function that waits for something must heed it, since a worker
// waits for the function, and so does [Engine.Run]. An error is an event of the parent, and the parent is synced again after a back-off. A panic
// becomes an error.
type CompositeFunc func(ctx context.Context, request *CompositeRequest) (*CompositeResponse, error)

// A DecoratorFunc is the sync or the finalize hook of a [Decorator]. It is called as a [CompositeFunc] is.
type DecoratorFunc func(ctx context.Context, request *DecoratorRequest) (*DecoratorResponse, error)

// A CustomizeFunc selects the related objects that the other hooks of a controller are shown. It is called as a [CompositeFunc] is.
type CustomizeFunc func(ctx context.Context, request *CustomizeRequest) (*CustomizeResponse, error)
