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
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
