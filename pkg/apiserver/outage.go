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
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// patience is how long etcd may take. A client of etcd waits until the request's own end while no member can be reached, and that is later
// than what clients of Kubernetes wait for at most.
const patience = 10 * time.Second

// errLate ends what waits for etcd longer.
var errLate = fmt.Errorf("it did not respond within %s", patience)

// retryAfter is how long clients wait before they repeat a request that etcd did not serve, in seconds. Clients of Kubernetes repeat
// it ten times, unless its body is a stream, as that of kubectl create --raw is: longer than the election of a leader takes.
const retryAfter = 1

// atOnce is within which time a refusal has to come for clients to be asked to repeat the request. For one that comes late this server has
// waited long enough itself: a client that repeated it ten times would say nothing for two minutes.
const atOnce = time.Second / 4

// outages has the storages of a getter tell of an etcd that does not serve, be it external or embedded, with 503 Service Unavailable,
// its cause and, where etcd cannot have carried out the request and said so at once, Retry-After. The generic API server would make 500 of it, which
// clients do not repeat.
type outages struct{ generic.RESTOptionsGetter }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g outages) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	o, err := g.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return o, err
	}
	decorate := o.Decorator
	o.Decorator = func(
		config *storagebackend.ConfigForResource, prefix string, keyOf func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		decorated, destroy, err := decorate(config, prefix, keyOf, newObject, newList, attributes, triggers, indexers)
		if err != nil {
			return nil, nil, err
		}
		return newOutageStorage(decorated, config.Codec), destroy, nil
	}
	return o, nil
}

// outageStorage is a storage of outages.
type outageStorage struct {
	storage.Interface

	// codec is what objects are stored with.
	codec runtime.Encoder
	// doubtful is whether the last request was not served. Writes then begin with a read, so that a write that cannot have reached etcd is
	// known to be one.
	doubtful *atomic.Bool
}

func newOutageStorage(below storage.Interface, codec runtime.Encoder) outageStorage {
	return outageStorage{below, codec, new(atomic.Bool)}
}

// etcdsTurn is the time that etcd has for a request, for all tries of it together.
type etcdsTurn struct {
	timer *time.Timer
	// left is what etcd had left at the time since.
	left  time.Duration
	since time.Time
	late  func() bool
	stop  context.CancelFunc
}

// newTurn returns a context for etcd, which ends when etcd has been waited for too long.
func newTurn(outer context.Context) (ctx context.Context, turn *etcdsTurn) {
	ctx, cancel := context.WithCancelCause(outer)
	return ctx, &etcdsTurn{
		timer: time.AfterFunc(patience, func() { cancel(errLate) }),
		left:  patience,
		since: time.Now(),
		late:  func() bool { return context.Cause(ctx) == errLate }, //nolint:errorlint // It is this one, or that of the request.
		stop:  func() { cancel(nil) },
	}
}

// pause is for what does not wait for etcd, such as admission, which may take longer. The function that it returns ends the pause.
func (t *etcdsTurn) pause() (end func()) {
	t.timer.Stop()
	t.left -= time.Since(t.since)
	return func() {
		t.since = time.Now()
		t.timer.Reset(t.left)
	}
}

// used returns how long etcd has been waited for.
func (t *etcdsTurn) used() time.Duration { return patience - t.left + time.Since(t.since) }

// end ends the turn, and returns the error of etcd: errLate if there was none in time.
func (t *etcdsTurn) end(err error) error {
	t.timer.Stop()
	late := t.late()
	t.stop()
	if err != nil && late {
		return errLate
	}
	return err
}

// Watch implements storage.Interface.
func (s outageStorage) Watch(ctx context.Context, key string, o storage.ListOptions) (watch.Interface, error) {
	if err := ofOtherStore(ctx, o.ResourceVersion, s.GetCurrentResourceVersion); err != nil {
		return nil, err
	}
	began := time.Now()
	w, err := s.Interface.Watch(ctx, key, o)
	return w, s.explain(err, time.Since(began), false)
}

// Get implements storage.Interface.
func (s outageStorage) Get(ctx context.Context, key string, o storage.GetOptions, out runtime.Object) error {
	bounded, turn := newTurn(ctx)
	err := turn.end(s.Interface.Get(bounded, key, o, out))
	return s.explain(err, turn.used(), o.ResourceVersion == "")
}

// GetList implements storage.Interface.
func (s outageStorage) GetList(ctx context.Context, key string, o storage.ListOptions, list runtime.Object) error {
	bounded, turn := newTurn(ctx)
	err := turn.end(s.Interface.GetList(bounded, key, o, list))
	return s.explain(err, turn.used(), o.ResourceVersion == "")
}

// explain returns the error for clients if etcd did not serve what may be repeated, for which it was waited for a time, and any other error as it
// is. What was served is no sign of etcd if the watch cache may have served it.
func (s outageStorage) explain(err error, waited time.Duration, byEtcd bool) error {
	if !isOutage(err) {
		if byEtcd {
			s.doubtful.Store(false)
		}
		if isTooLarge(err) {
			return &tooLargeError{err}
		}
		return err
	}
	s.doubtful.Store(true)
	refusal := apierrors.NewServiceUnavailable("the etcd of this server does not serve the request at present: " + err.Error())
	if waited < atOnce {
		refusal.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	}
	return refusal
}

// isOutage reports whether an error of etcd's client says that no member could be reached, that there is no leader, that an answer was
// late, that etcd has too much to do, or that the database is full, which an embedded etcd mends as far as it can.
func isOutage(err error) bool {
	return errors.Is(err, errLate) || codeOf(err) == codes.Unavailable || isRefused(err)
}

// isRefused reports whether etcd says that it has not begun with a request. That its database is full, it also says of the write that filled it:
// those who write look at the object before they return that.
func isRefused(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyRequests) || isFull(err) || errors.Is(err, rpctypes.ErrNoLeader)
}

// isFull reports whether etcd says that its database is full. It says so of no deletion, which takes no space.
func isFull(err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) }

func codeOf(err error) codes.Code {
	if known, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return known.Code()
	}
	return status.Code(err)
}

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

// metadata is empty for what is no object.
func metadata(o runtime.Object) metav1.Object {
	m, err := meta.Accessor(o)
	if err != nil {
		return &metav1.ObjectMeta{}
	}
	return m
}

func uid(o runtime.Object) types.UID { return metadata(o).GetUID() }

func versionOf(o runtime.Object) string { return metadata(o).GetResourceVersion() }

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
	metadata(o).SetResourceVersion("")
	return runtime.Encode(s.codec, o)
}

// A tooLargeError says that an object is larger than etcd takes. Clients get 413 Request Entity Too Large, of which the generic API server would
// make 500. That recognizes it as the error of etcd's client, and so tries a patch again without managed fields.
type tooLargeError struct{ error }

var _ apierrors.APIStatus = &tooLargeError{}

// isTooLarge reports whether an error says that etcd, or its client, takes no request of this size.
func isTooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrRequestTooLarge) ||
		status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "trying to send message larger than max")
}

// Error is the text of etcd.
func (*tooLargeError) Error() string { return rpctypes.ErrRequestTooLarge.Error() }

// Code is that of etcd.
func (*tooLargeError) Code() codes.Code { return codes.InvalidArgument }

// Unwrap returns what etcd's client said.
func (e *tooLargeError) Unwrap() error { return e.error }

// Status implements apierrors.APIStatus.
func (e *tooLargeError) Status() metav1.Status {
	return apierrors.NewRequestEntityTooLargeError("the object as it would be stored is too large for the etcd of this server, which takes 1.5 MiB. Its flag " +
		"--max-request-bytes allows up to 2 MiB: " + e.error.Error()).Status()
}
