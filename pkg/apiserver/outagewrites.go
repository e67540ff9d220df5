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
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage"
)

// soon is the time until a write whose outcome is not known is tried again, the first time. It doubles.
const soon = 50 * time.Millisecond

// attempt is the present try of a write.
type attempt struct {
	turn *etcdsTurn
	// again is whether an earlier try may have been carried out.
	again bool
	// sent is set as soon as the try may reach etcd.
	sent bool
}

// write tries a write until its outcome is known or etcd's time is over. An etcd that ends the connection, elects a leader or is slow
// leaves open whether it has written. A client that repeated such a write would meet its own: a creation would find that the object
// exists, an update that it has changed, a deletion that it is gone. So it is repeated here, where one's own write is recognized, and
// clients are asked to repeat only what etcd has not carried out.
func (s outageStorage) write(ctx context.Context, try func(context.Context, *attempt) error) error {
	bounded, turn := newTurn(ctx)
	a := &attempt{turn: turn}
	for wait := soon; ; wait *= 2 {
		err := try(bounded, a)
		unanswered := err != nil && (bounded.Err() != nil || isOutage(err))
		a.again = a.again || a.sent && unanswered && !isRefused(err)
		if a.again && unanswered && pass(bounded, wait) {
			a.sent = false
			continue
		}
		err = turn.end(err)
		if !a.again || !isOutage(err) {
			return s.explain(err, turn.used(), err == nil)
		}
		s.doubtful.Store(true)
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the etcd of this server does not serve the request at present, and has not said "+
			"whether it has carried it out: %v; look at the object before you repeat the request", err))
	}
}

// pass waits for d, and reports whether ctx goes on after that.
func pass(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// begin is before a try. While it is in doubt whether etcd serves, it reads the object, which has the type of example.
func (s outageStorage) begin(ctx context.Context, a *attempt, key string, example runtime.Object) error {
	if a.again || !s.doubtful.Load() {
		return nil
	}
	return s.Interface.Get(ctx, key, storage.GetOptions{IgnoreNotFound: true}, empty(example))
}

// Create implements storage.Interface.
func (s outageStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return s.write(ctx, func(ctx context.Context, a *attempt) error {
		if err := s.begin(ctx, a, key, obj); err != nil {
			return err
		}
		a.sent = true
		err := s.Interface.Create(ctx, key, obj, out, ttl)
		if !isFull(err) && (!a.again || !storage.IsExist(err)) {
			return err
		}
		found := empty(obj)
		if err := s.look(ctx, a, key, found); err != nil {
			return err
		}
		if uid(found) != uid(obj) {
			return err
		}
		return set(out, found)
	})
}

// GuaranteedUpdate implements storage.Interface.
func (s outageStorage) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions,
	update storage.UpdateFunc, cached runtime.Object,
) error {
	// asked is what the tries whose outcome is not known would have stored, and last that of the present one.
	var asked []runtime.Object
	var last runtime.Object
	// before is the version that the present try is about.
	var before string
	return s.write(ctx, func(ctx context.Context, a *attempt) error {
		if err := s.begin(ctx, a, key, out); err != nil {
			return err
		}
		must := preconditions
		if a.again {
			asked, must = append(asked, last), nil
		}
		err := s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, must,
			func(input runtime.Object, info storage.ResponseMeta) (runtime.Object, *uint64, error) {
				defer a.turn.pause()()
				if a.again {
					if slices.ContainsFunc(asked, func(o runtime.Object) bool { return s.sameContent(o, input) }) {
						return input, nil, nil
					}
					if err := preconditions.Check(key, input); err != nil {
						return nil, nil, err
					}
				}
				of := versionOf(input)
				updated, ttl, err := update(input, info)
				if err == nil {
					last, before, a.sent = updated, of, true
				}
				return updated, ttl, err
			}, cached)
		if !isFull(err) || !a.sent {
			return err
		}
		found := empty(out)
		if err := s.look(ctx, a, key, found); err != nil {
			return err
		}
		return s.outcome(a, last, found, before, out, err)
	})
}

// outcome returns what became of an update of which etcd said with err that its database is full: it was carried out if the object that was found is
// what was to be stored, and was not if it has the version of before. Else another write came after it, or in place of it, and it is tried again.
func (s outageStorage) outcome(a *attempt, asked, found runtime.Object, before string, out runtime.Object, err error) error {
	if s.sameContent(asked, found) {
		return set(out, found)
	}
	a.again = a.again || versionOf(found) != before
	return err
}

// look reads what became of a write that may have been carried out.
func (s outageStorage) look(ctx context.Context, a *attempt, key string, found runtime.Object) error {
	err := s.Interface.Get(ctx, key, storage.GetOptions{IgnoreNotFound: true}, found)
	a.again = a.again || err != nil
	return err
}

// Delete implements storage.Interface.
func (s outageStorage) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc,
	cached runtime.Object, o storage.DeleteOptions,
) error {
	var seen runtime.Object
	admit := func(existing runtime.Object) error { return validate(ctx, existing) }
	return s.write(ctx, func(ctx context.Context, a *attempt) error {
		if err := s.begin(ctx, a, key, out); err != nil {
			return err
		}
		must := preconditions
		if a.again {
			// One of that name that was created meanwhile is another object.
			must = &storage.Preconditions{UID: new(uid(seen))}
			if preconditions != nil {
				must.ResourceVersion = preconditions.ResourceVersion
			}
		}
		err := s.Interface.Delete(ctx, key, out, must, func(_ context.Context, existing runtime.Object) error {
			defer a.turn.pause()()
			err := admit(existing)
			if err == nil {
				seen, a.sent = existing, true
			}
			return err
		}, cached, o)
		if !a.again || !storage.IsNotFound(err) && !storage.IsInvalidObj(err) {
			return err
		}
		found := empty(out)
		if err := s.look(ctx, a, key, found); err != nil {
			return err
		}
		if uid(found) == uid(seen) {
			return err
		}
		return set(out, seen)
	})
}

// empty returns a new object of the type of example.
func empty(example runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(example).Elem()).Interface().(runtime.Object) //nolint:forcetypeassert // It is of that type.
}

// uid is empty for what is no object.
func uid(o runtime.Object) types.UID {
	m, err := meta.Accessor(o)
	if err != nil {
		return ""
	}
	return m.GetUID()
}

// versionOf is empty for what is no object.
func versionOf(o runtime.Object) string {
	m, err := meta.Accessor(o)
	if err != nil {
		return ""
	}
	return m.GetResourceVersion()
}

// set makes to what from is.
func set(to, from runtime.Object) error {
	target, source := reflect.ValueOf(to), reflect.ValueOf(from)
	if target.Type() != source.Type() {
		return fmt.Errorf("the storage has a %T in place of a %T", from, to)
	}
	target.Elem().Set(source.Elem())
	return nil
}

// sameContent reports whether two objects are stored as the same but for their resource versions.
func (s outageStorage) sameContent(a, b runtime.Object) bool {
	first, err := s.content(a)
	if err != nil {
		return false
	}
	second, err := s.content(b)
	return err == nil && bytes.Equal(first, second)
}

func (s outageStorage) content(o runtime.Object) ([]byte, error) {
	o = o.DeepCopyObject()
	if m, err := meta.Accessor(o); err == nil {
		m.SetResourceVersion("")
	}
	return runtime.Encode(s.codec, o)
}
