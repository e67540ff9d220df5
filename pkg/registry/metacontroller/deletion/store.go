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

package deletion

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// finalizersError says that an object has finalizers, and that nobody has marked it as being deleted.
type finalizersError struct{ name string }

// Error implements error.
func (*finalizersError) Error() string { return "the object was given a finalizer meanwhile" }

// Store is a store of one kind that removes no object with finalizers before it was marked as being deleted.
type Store struct {
	*genericregistry.Store
}

// NewStore returns a Store that shares everything with s, which must be completed and stays as it is.
func NewStore(s *genericregistry.Store) *Store {
	shared := *s
	shared.Storage.Storage = guarded{s.Storage.Storage}
	return &Store{&shared}
}

// Delete deletes an object, or marks it as being deleted if it has finalizers at the moment at which it would be removed. The error is a
// Conflict if ctx ends before that is settled.
func (s *Store) Delete(
	ctx context.Context, name string, validation rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (deleted runtime.Object, immediately bool, err error) {
	err = s.repeat(ctx, true, func() error {
		deleted, immediately, err = s.Store.Delete(ctx, name, validation, options.DeepCopy())
		return err
	})
	return deleted, immediately, err
}

// DeleteCollection does for the objects of a list what Delete does for one. The error is a Conflict as well if the list has a limit and one
// of its objects was given a finalizer meanwhile: another list might have other objects.
func (s *Store) DeleteCollection(
	ctx context.Context, validation rest.ValidateObjectFunc, options *metav1.DeleteOptions, selection *metainternalversion.ListOptions,
) (deleted runtime.Object, err error) {
	err = s.repeat(ctx, selection == nil || selection.Limit == 0, func() error {
		deleted, err = s.Store.DeleteCollection(ctx, validation, options, selection)
		return err
	})
	return deleted, err
}

// repeat deletes until no object was given a finalizer meanwhile, or ctx ends, or once if it may not be repeated.
func (s *Store) repeat(ctx context.Context, again bool, remove func() error) error {
	for {
		err := remove()
		given, ok := errors.AsType[*finalizersError](err)
		switch {
		case !ok:
			return err
		case !again || ctx.Err() != nil:
			return apierrors.NewConflict(s.DefaultQualifiedResource, given.name, err)
		}
	}
}

// guarded is the storage of one kind. It validates the state of an object that is removed, whatever was read before.
type guarded struct{ storage.Interface }

// Delete implements storage.Interface.
func (g guarded) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc,
	cached runtime.Object, options storage.DeleteOptions,
) error {
	guard := func(ctx context.Context, o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err != nil {
			return storage.NewInternalError(err)
		}
		if len(m.GetFinalizers()) > 0 && m.GetDeletionTimestamp() == nil {
			return &finalizersError{m.GetName()}
		}
		return validate(ctx, o)
	}
	return g.Interface.Delete(ctx, key, out, preconditions, guard, cached, options) //nolint:wrapcheck // The store tells the errors of storages apart.
}
