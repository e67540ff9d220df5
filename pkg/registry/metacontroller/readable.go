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

package metacontroller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
)

const (
	// readableTimeout bounds CheckReadable: whether etcd answers at all is for the health checks to say.
	readableTimeout = 10 * time.Second
	// readablePage is how many objects are read at a time.
	readablePage = 500
)

// An UnreadableError means that objects are stored encrypted, and not with a key that the server was given.
type UnreadableError struct {
	// Resource is that of the objects.
	Resource schema.GroupResource
	// Err names the key of the first such object, and says what is wrong with it.
	Err error
}

// Error says which objects, why, and what to do.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("stored %s cannot be decrypted: %v; the file of --encryption-provider-config must have every key with which objects were "+
		"encrypted, until all of them are written anew. Nothing was changed", e.Resource.Resource, e.Err)
}

// Unwrap returns what is wrong with the object.
func (e *UnreadableError) Unwrap() error { return e.Err }

// CheckReadable returns an *UnreadableError if a stored object is encrypted with a key that the server was not given. Without it, such a
// server would come up and never be ready. All reads every object; otherwise one of each resource is read, which costs nothing and finds
// that encryption was forgotten as a whole. An etcd that does not answer is no error here.
func CheckReadable(ctx context.Context, getter generic.RESTOptionsGetter, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, readableTimeout)
	defer cancel()
	for _, r := range []struct {
		resource  string
		one, list func() runtime.Object
	}{
		{
			"compositecontrollers", func() runtime.Object { return &metacontroller.CompositeController{} },
			func() runtime.Object { return &metacontroller.CompositeControllerList{} },
		},
		{
			"decoratorcontrollers", func() runtime.Object { return &metacontroller.DecoratorController{} },
			func() runtime.Object { return &metacontroller.DecoratorControllerList{} },
		},
		{
			"controllerrevisions", func() runtime.Object { return &metacontroller.ControllerRevision{} },
			func() runtime.Object { return &metacontroller.ControllerRevisionList{} },
		},
	} {
		resource := metacontroller.Resource(r.resource)
		switch err := readThrough(ctx, getter, resource, r.one, r.list, all); {
		case err == nil:
		case storage.IsInternalError(err) && strings.Contains(err.Error(), "unable to transform key"):
			return &UnreadableError{Resource: resource, Err: err}
		default:
			klog.FromContext(ctx).V(2).Info("Could not check that what is stored can be read", "resource", resource, "err", err)
		}
	}
	return nil
}

// readThrough reads the stored objects of a resource, past the watch cache.
func readThrough(ctx context.Context, getter generic.RESTOptionsGetter, resource schema.GroupResource, one, list func() runtime.Object, all bool,
) error {
	options, err := getter.GetRESTOptions(resource, one())
	if err != nil {
		return err
	}
	prefix := "/" + strings.TrimPrefix(options.ResourcePrefix, "/")
	stored, destroy, err := factory.Create(*options.StorageConfig, one, list, prefix)
	if err != nil {
		return err
	}
	defer destroy()
	predicate := storage.Everything
	predicate.Limit = 1
	if all {
		predicate.Limit = readablePage
	}
	for {
		page := list()
		if err := stored.GetList(ctx, prefix+"/", storage.ListOptions{Predicate: predicate, Recursive: true}, page); err != nil {
			return err
		}
		read, err := meta.ListAccessor(page)
		if err != nil {
			return err
		}
		if predicate.Continue = read.GetContinue(); predicate.Continue == "" || !all {
			return nil
		}
	}
}
