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

package apiserver

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	internal "github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
)

const (
	resource = "compositecontrollers"
	at       = "/" + resource + "/it"
)

// fate is what becomes of the first write, of which etcd says only that it has not answered in time.
type fate string

const (
	carriedOut fate = "carried out"
	dropped    fate = "dropped"
	// late is carried out after the write was begun for the second time.
	late fate = "late"
)

// unsureStorage does not know what became of its first write.
type unsureStorage struct {
	storage.Interface

	fate    fate
	writes  int
	between func()
	pending func() error
	// says is what it says of the first write: that it has not answered in time, if it is nil.
	says error
}

func (s *unsureStorage) write(do func() error) error {
	s.writes++
	if s.writes > 1 {
		if s.pending != nil {
			_ = s.pending() // What it is in the way of is what counts.
			s.pending = nil
		}
		return do()
	}
	switch s.fate {
	case carriedOut:
		if err := do(); err != nil {
			return err
		}
	case late:
		s.pending = do
	case dropped:
	}
	s.between()
	if s.says != nil {
		return s.says
	}
	return rpctypes.ErrTimeout
}

func (s *unsureStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	obj = obj.DeepCopyObject()
	return s.write(func() error { return s.Interface.Create(ctx, key, obj, out, ttl) })
}

func (s *unsureStorage) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc,
	cached runtime.Object, o storage.DeleteOptions,
) error {
	do := func() error { return s.Interface.Delete(ctx, key, out, preconditions, validate, cached, o) }
	if s.writes == 0 && s.fate != carriedOut {
		// The object is read, and the write is not made then.
		found := &internal.CompositeController{}
		if err := s.Get(ctx, key, storage.GetOptions{}, found); err != nil {
			return err
		}
		if err := validate(ctx, found); err != nil {
			return err
		}
	}
	return s.write(do)
}

func (s *unsureStorage) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions,
	update storage.UpdateFunc, cached runtime.Object,
) error {
	if s.writes > 0 || s.fate == carriedOut {
		return s.write(func() error {
			return s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
		})
	}
	found := &internal.CompositeController{}
	if err := s.Get(ctx, key, storage.GetOptions{}, found); err != nil {
		return err
	}
	version := found.ResourceVersion
	updated, _, err := update(found, storage.ResponseMeta{})
	if err != nil {
		return err
	}
	return s.write(func() error {
		return s.Interface.GuaranteedUpdate(ctx, key, &internal.CompositeController{}, false, &storage.Preconditions{ResourceVersion: &version},
			func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) { return updated, nil, nil }, nil)
	})
}

// stored is a storage with an etcd.
func stored(t *testing.T) storage.Interface {
	t.Helper()
	etcd, err := embeddedetcd.Start(t.Context(), embeddedetcd.Options{Dir: t.TempDir(), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	})
	config := storagebackend.NewDefaultConfig("/test", Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion))
	config.Transport.ServerList = []string{etcd.Endpoint()}
	s, destroy, err := factory.Create(*config.ForResource(schema.GroupResource{Group: v1alpha1.GroupName, Resource: resource}),
		func() runtime.Object { return &internal.CompositeController{} },
		func() runtime.Object { return &internal.CompositeControllerList{} }, "/"+resource)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	return s
}

// object has what only the server writes, and a time that is stored in whole seconds.
func object(uid types.UID, note string) *internal.CompositeController {
	return &internal.CompositeController{ObjectMeta: metav1.ObjectMeta{
		Name: "it", UID: uid, CreationTimestamp: metav1.Now(), Annotations: map[string]string{"note": note}, Labels: map[string]string{},
	}}
}

// annotate changes the object as a client does that has seen the version.
func annotate(note, version string) storage.UpdateFunc {
	return func(input runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		o := input.DeepCopyObject().(*internal.CompositeController)
		if version != "" && o.ResourceVersion != version {
			return nil, nil, apierrors.NewConflict(schema.GroupResource{}, o.Name, nil)
		}
		o.Annotations["note"] = note
		return o, nil, nil
	}
}

// TestAWriteWhoseAnswerWasLostIsRecognized has each write be of an outcome that the server does not know, alone and with another
// client's write at the same time.
func TestAWriteWhoseAnswerWasLostIsRecognized(t *testing.T) {
	below := stored(t)
	ctx := t.Context()
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	created := func(t *testing.T, uid types.UID, note string) *internal.CompositeController {
		t.Helper()
		out := &internal.CompositeController{}
		must(t, below.Create(ctx, at, object(uid, note), out, 0))
		return out
	}
	deleted := func(t *testing.T) {
		t.Helper()
		must(t, below.Delete(ctx, at, &internal.CompositeController{}, nil, rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{}))
	}
	changed := func(t *testing.T, note string) {
		t.Helper()
		must(t, below.GuaranteedUpdate(ctx, at, &internal.CompositeController{}, false, nil, annotate(note, ""), nil))
	}
	for _, fate := range []fate{carriedOut, dropped, late} {
		for name, tc := range map[string]struct {
			// exists is whether the object is there before.
			exists bool
			do     func(s storage.Interface, version string, out runtime.Object) error
			// other is what another client does meanwhile. It is done with the write carried out, or not.
			other func(t *testing.T)
			// refused is whether the write must fail, and note what is stored in the end: nothing if it is empty.
			refused func(error) bool
			note    string
			uid     types.UID
		}{
			"creation": {
				do: func(s storage.Interface, _ string, out runtime.Object) error {
					return s.Create(ctx, at, object("mine", "new"), out, 0)
				},
				note: "new", uid: "mine",
			},
			"update": {
				exists: true,
				do: func(s storage.Interface, version string, out runtime.Object) error {
					return s.GuaranteedUpdate(ctx, at, out, false, nil, annotate("new", version), nil)
				},
				note: "new", uid: "old",
			},
			"update with a precondition": {
				exists: true,
				do: func(s storage.Interface, version string, out runtime.Object) error {
					return s.GuaranteedUpdate(ctx, at, out, false, &storage.Preconditions{ResourceVersion: &version}, annotate("new", ""), nil)
				},
				note: "new", uid: "old",
			},
			"update of what another changes": {
				exists: true,
				do: func(s storage.Interface, version string, out runtime.Object) error {
					return s.GuaranteedUpdate(ctx, at, out, false, nil, annotate("new", version), nil)
				},
				other:   func(t *testing.T) { t.Helper(); changed(t, "another's") },
				refused: apierrors.IsConflict,
				note:    "another's", uid: "old",
			},
			"deletion": {
				exists: true,
				do: func(s storage.Interface, _ string, out runtime.Object) error {
					return s.Delete(ctx, at, out, nil, rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
				},
				uid: "old",
			},
			"deletion with a precondition": {
				exists: true,
				do: func(s storage.Interface, version string, out runtime.Object) error {
					return s.Delete(ctx, at, out, &storage.Preconditions{ResourceVersion: &version}, rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
				},
				uid: "old",
			},
		} {
			t.Run(name+", "+string(fate), func(t *testing.T) {
				version := ""
				if tc.exists {
					version = created(t, "old", "old").ResourceVersion
				}
				unsure := &unsureStorage{Interface: below, fate: fate, between: func() {
					if tc.other != nil {
						tc.other(t)
					}
				}}
				out := &internal.CompositeController{}
				err := tc.do(newOutageStorage(unsure, Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)), version, out)
				switch {
				case tc.refused == nil && (err != nil || out.UID != tc.uid):
					t.Errorf("got %v, and the object %q; want success, and %q", err, out.UID, tc.uid)
				case tc.refused != nil && !tc.refused(err):
					t.Errorf("got %v", err)
				case unsure.writes < 2:
					t.Errorf("%d writes; the first one's outcome was known", unsure.writes)
				}
				found := &internal.CompositeController{}
				must(t, below.Get(ctx, at, storage.GetOptions{IgnoreNotFound: true}, found))
				if found.Annotations["note"] != tc.note {
					t.Errorf("stored is %q, want %q", found.Annotations["note"], tc.note)
				}
				if found.UID != "" {
					deleted(t)
				}
			})
		}
	}
}

// TestWhatAnotherHasCreatedIsNoWriteOfOurs is about a creation of an unknown outcome while another client creates one of that name.
func TestWhatAnotherHasCreatedIsNoWriteOfOurs(t *testing.T) {
	below := stored(t)
	unsure := &unsureStorage{Interface: below, fate: dropped, between: func() {
		if err := below.Create(t.Context(), at, object("another's", "another's"), nil, 0); err != nil {
			t.Error(err)
		}
	}}
	err := newOutageStorage(unsure, Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)).Create(t.Context(), at, object("mine", "new"),
		&internal.CompositeController{}, 0)
	if !storage.IsExist(err) {
		t.Errorf("got %v, want that it exists", err)
	}
}

// TestTheWriteThatFillsTheDatabaseIsNotRepeated is about the writes of which etcd says that its database is full, before it writes or after.
func TestTheWriteThatFillsTheDatabaseIsNotRepeated(t *testing.T) {
	below := stored(t)
	ctx := t.Context()
	create := func(s storage.Interface, _ string, out runtime.Object) error {
		return s.Create(ctx, at, object("mine", "new"), out, 0)
	}
	update := func(s storage.Interface, version string, out runtime.Object) error {
		return s.GuaranteedUpdate(ctx, at, out, false, nil, annotate("new", version), nil)
	}
	for name, tc := range map[string]struct {
		do     func(s storage.Interface, version string, out runtime.Object) error
		fate   fate
		other  bool
		exists bool
		// refused is whether the write must fail, and note what is stored in the end: nothing if it is empty.
		refused func(error) bool
		note    string
		writes  int
	}{
		"a creation that was carried out":               {do: create, fate: carriedOut, note: "new", writes: 1},
		"an update that was carried out":                {do: update, fate: carriedOut, exists: true, note: "new", writes: 1},
		"a creation that was not":                       {do: create, fate: dropped, refused: mayRepeat, writes: 1},
		"an update that was not":                        {do: update, fate: dropped, exists: true, refused: mayRepeat, note: "old", writes: 1},
		"an update before that of another client":       {do: update, fate: carriedOut, exists: true, other: true, refused: apierrors.IsConflict, note: "another's", writes: 2},
		"an update in place of which another was taken": {do: update, fate: dropped, exists: true, other: true, refused: apierrors.IsConflict, note: "another's", writes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			version := ""
			if tc.exists {
				old := &internal.CompositeController{}
				if err := below.Create(ctx, at, object("mine", "old"), old, 0); err != nil {
					t.Fatal(err)
				}
				version = old.ResourceVersion
			}
			full := &unsureStorage{Interface: below, fate: tc.fate, says: rpctypes.ErrNoSpace, between: func() {
				if !tc.other {
					return
				}
				if err := below.GuaranteedUpdate(ctx, at, &internal.CompositeController{}, false, nil, annotate("another's", ""), nil); err != nil {
					t.Error(err)
				}
			}}
			out := &internal.CompositeController{}
			err := tc.do(newOutageStorage(full, Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)), version, out)
			if tc.refused == nil && (err != nil || out.Annotations["note"] != tc.note) || tc.refused != nil && !tc.refused(err) {
				t.Errorf("got %v, and %q", err, out.Annotations["note"])
			}
			if full.writes != tc.writes {
				t.Errorf("%d writes, want %d", full.writes, tc.writes)
			}
			found := &internal.CompositeController{}
			if err := below.Get(ctx, at, storage.GetOptions{IgnoreNotFound: true}, found); err != nil || found.Annotations["note"] != tc.note {
				t.Errorf("stored is %q, want %q: %v", found.Annotations["note"], tc.note, err)
			}
			if found.UID == "" {
				return
			}
			err = below.Delete(ctx, at, &internal.CompositeController{}, nil, rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// mayRepeat reports whether an error asks the client to repeat the request.
func mayRepeat(err error) bool {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	return ok && seconds > 0 && apierrors.IsServiceUnavailable(err)
}
