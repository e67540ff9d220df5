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

package deletion_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/deletion"
)

// stored is a storage of CompositeControllers. Some are given a finalizer between the read and the removal.
type stored struct {
	storage.Interface

	mu    sync.Mutex
	names []string
	// given is called when an object that was given a finalizer would be removed. It returns whether it has that still.
	given map[string]func() bool
}

func (s *stored) Get(_ context.Context, key string, _ storage.GetOptions, out runtime.Object) error {
	out.(*metacontroller.CompositeController).Name = strings.TrimPrefix(key, "/")
	return nil
}

func (s *stored) GetList(_ context.Context, _ string, options storage.ListOptions, out runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := out.(*metacontroller.CompositeControllerList)
	for _, name := range s.names {
		if options.Predicate.Limit == 0 || int64(len(list.Items)) < options.Predicate.Limit {
			list.Items = append(list.Items, metacontroller.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	return nil
}

func (s *stored) Delete(
	ctx context.Context, key string, out runtime.Object, _ *storage.Preconditions, validate storage.ValidateObjectFunc, _ runtime.Object,
	_ storage.DeleteOptions,
) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := out.(*metacontroller.CompositeController)
	c.Name = strings.TrimPrefix(key, "/")
	if given, ok := s.given[c.Name]; ok && given() {
		c.Finalizers = []string{"example.com/finalizer"}
	}
	if err := validate(ctx, c); err != nil {
		return err
	}
	s.names = slices.DeleteFunc(s.names, func(name string) bool { return name == c.Name })
	return nil
}

func newStore(s *stored) *deletion.Store {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return deletion.NewStore(&genericregistry.Store{
		NewFunc:                  func() runtime.Object { return &metacontroller.CompositeController{} },
		NewListFunc:              func() runtime.Object { return &metacontroller.CompositeControllerList{} },
		DefaultQualifiedResource: v1alpha1.Resource("compositecontrollers"),
		KeyRootFunc:              func(context.Context) string { return "/" },
		KeyFunc:                  func(_ context.Context, name string) (string, error) { return "/" + name, nil },
		DeleteStrategy:           controller.Composites().Strategy(scheme),
		PredicateFunc:            controller.Composites().Predicate,
		Storage:                  genericregistry.DryRunnableStorage{Storage: s},
	})
}

func conflicts(err error, name string) bool {
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), name) && strings.Contains(err.Error(), "given a finalizer meanwhile")
}

func TestADeletionThatIsNotSettledWhenItsRequestEndsConflicts(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	s := &stored{names: []string{"first"}, given: map[string]func() bool{"first": func() bool { end(); return true }}}
	if _, _, err := newStore(s).Delete(ctx, "first", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); !conflicts(err, "first") {
		t.Errorf("the error is %v, want a conflict that names the object", err)
	}
}

func TestDeletionsAreRepeatedWhenFinalizersAreGivenMeanwhile(t *testing.T) {
	times := 0
	s := &stored{names: []string{"first", "second"}, given: map[string]func() bool{"first": func() bool { times++; return times < 3 }}}
	_, err := newStore(s).DeleteCollection(t.Context(), rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, nil)
	if err != nil || len(s.names) > 0 || times != 3 {
		t.Errorf("%v are left after %d attempts, error %v", s.names, times, err)
	}
}

// TestALimitedDeletionDeletesNothingElse lets another client delete the first object, after which the same list has the second one.
func TestALimitedDeletionDeletesNothingElse(t *testing.T) {
	s := &stored{names: []string{"first", "second"}}
	s.given = map[string]func() bool{"first": func() bool {
		s.names = []string{"second"}
		return true
	}}
	_, err := newStore(s).DeleteCollection(t.Context(), rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, &metainternalversion.ListOptions{Limit: 1})
	if !conflicts(err, "first") || !slices.Equal(s.names, []string{"second"}) {
		t.Errorf("%v are left, error %v; want a conflict about the first object", s.names, err)
	}
}
