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
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	internal "github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
)

// brokenStorage fails every request with the same error.
type brokenStorage struct {
	storage.Interface

	err error
}

func (s brokenStorage) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return s.err
}

func (s brokenStorage) Delete(context.Context, string, runtime.Object, *storage.Preconditions, storage.ValidateObjectFunc, runtime.Object, storage.DeleteOptions) error {
	return s.err
}

func (s brokenStorage) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return nil, s.err
}

func (s brokenStorage) Get(context.Context, string, storage.GetOptions, runtime.Object) error {
	return s.err
}

func (s brokenStorage) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	return s.err
}

func (s brokenStorage) GuaranteedUpdate(context.Context, string, runtime.Object, bool, *storage.Preconditions, storage.UpdateFunc, runtime.Object) error {
	return s.err
}

// broken returns the storage that the server makes on top of one that fails.
func broken(t *testing.T, err error) storage.Interface {
	t.Helper()
	below := generic.RESTOptions{Decorator: func(
		*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object, func() runtime.Object,
		storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		return brokenStorage{err: err}, func() {}, nil
	}}
	options, failed := outages{below}.GetRESTOptions(schema.GroupResource{}, nil)
	if failed != nil {
		t.Fatal(failed)
	}
	s, _, failed := options.Decorator(&storagebackend.ConfigForResource{}, "", nil, nil, nil, nil, nil, nil)
	if failed != nil {
		t.Fatal(failed)
	}
	return s
}

// requests are all that a storage is asked for.
var requests = map[string]func(context.Context, storage.Interface) error{
	"Create": func(ctx context.Context, s storage.Interface) error {
		return s.Create(ctx, "", &internal.CompositeController{}, nil, 0)
	},
	"Delete": func(ctx context.Context, s storage.Interface) error {
		return s.Delete(ctx, "", &internal.CompositeController{}, nil, nil, nil, storage.DeleteOptions{})
	},
	"Watch": func(ctx context.Context, s storage.Interface) error {
		_, err := s.Watch(ctx, "", storage.ListOptions{})
		return err
	},
	"Get": func(ctx context.Context, s storage.Interface) error { return s.Get(ctx, "", storage.GetOptions{}, nil) },
	"GetList": func(ctx context.Context, s storage.Interface) error {
		return s.GetList(ctx, "", storage.ListOptions{}, nil)
	},
	"GuaranteedUpdate": func(ctx context.Context, s storage.Interface) error {
		return s.GuaranteedUpdate(ctx, "", &internal.CompositeController{}, false, nil, nil, nil)
	},
}

func TestAnOutageOfEtcdIsToldAsOne(t *testing.T) {
	for name, outage := range map[string]struct {
		err error
		// unknown is whether it leaves open what became of a write.
		unknown bool
	}{
		"no answer in time":                {rpctypes.Error(rpctypes.ErrGRPCTimeout), true},
		"a leader that was lost meanwhile": {rpctypes.Error(rpctypes.ErrGRPCTimeoutDueToLeaderFail), true},
		"an election":                      {rpctypes.Error(rpctypes.ErrGRPCLeaderChanged), true},
		"no member":                        {status.Error(codes.Unavailable, "connection refused"), true},
		"no leader":                        {rpctypes.Error(rpctypes.ErrGRPCNoLeader), false},
		"too much to do":                   {rpctypes.ErrTooManyRequests, false},
		// Of the write that fills the database etcd says so as well.
		"a full database": {rpctypes.ErrNoSpace, true},
	} {
		for request, do := range requests {
			t.Run(name+", "+request, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := broken(t, outage.err)
					// Of a creation alone it is known that it was sent: the others fail while they read what they write.
					sent := request == "Create"
					is := refused(t, do(t.Context(), s))
					if asks := is.Details != nil && is.Details.RetryAfterSeconds == retryAfter; asks == (outage.unknown && sent) {
						t.Errorf("got %+v; Retry-After is for what may be repeated alone", is)
					}
					cause := outage.err.Error()
					if sent && outage.unknown {
						cause = "look at the object before you repeat"
					}
					if !strings.Contains(is.Message, "etcd") || !strings.Contains(is.Message, cause) {
						t.Errorf("%q does not tell %q", is.Message, cause)
					}
					if again := refused(t, do(t.Context(), s)); again.Details == nil || again.Details.RetryAfterSeconds != retryAfter {
						t.Errorf("in an outage that is known, got %+v, want Retry-After", again)
					}
				})
			})
		}
	}
}

// refused returns the status of what must be 503.
func refused(t *testing.T, err error) metav1.Status {
	t.Helper()
	got, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		t.Fatalf("got %v, want a status", err)
	}
	if got.Status().Code != http.StatusServiceUnavailable {
		t.Errorf("got %+v, want 503", got.Status())
	}
	return got.Status()
}

func TestOtherErrorsOfTheStorageStayAsTheyAre(t *testing.T) {
	for name, err := range map[string]error{
		"success":           nil,
		"not found":         storage.NewKeyNotFoundError("key", 1),
		"a refused object":  apierrors.NewBadRequest("wrong"),
		"an ended request":  context.Canceled,
		"a request's limit": context.DeadlineExceeded,
		"a large object":    rpctypes.ErrRequestTooLarge,
		"an old version":    rpctypes.ErrCompacted,
	} {
		s := broken(t, err)
		for request, do := range requests {
			if got := do(t.Context(), s); !errors.Is(got, err) {
				t.Errorf("%s, %s: got %v, want %v", name, request, got, err)
			}
		}
	}
}

// silentStorage waits until requests end, after it has admitted what is to be updated and deleted.
type silentStorage struct{ brokenStorage }

func (s silentStorage) Get(ctx context.Context, _ string, _ storage.GetOptions, _ runtime.Object) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s silentStorage) Delete(
	ctx context.Context, _ string, _ runtime.Object, _ *storage.Preconditions, validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	return errors.Join(validate(ctx, nil), ctx.Err())
}

func (s silentStorage) GuaranteedUpdate(
	ctx context.Context, _ string, _ runtime.Object, _ bool, _ *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object,
) error {
	_, _, err := update(nil, storage.ResponseMeta{})
	return errors.Join(err, ctx.Err())
}

func TestAnEtcdThatIsSilentIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := newOutageStorage(silentStorage{}, nil).Get(t.Context(), "", storage.GetOptions{}, nil)
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "within 10s") || time.Since(began) != patience {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if seconds, again := apierrors.SuggestsClientDelay(err); again {
			t.Errorf("a client is asked to repeat it after %d seconds, ten times, and would be silent for two minutes", seconds)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := newOutageStorage(silentStorage{}, nil).Get(ctx, "", storage.GetOptions{}, nil); apierrors.IsServiceUnavailable(err) {
			t.Errorf("the end of the request is told as %v", err)
		}
	})
}

func TestAdmissionMayTakeLongerThanEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutageStorage(silentStorage{}, nil)
		err := s.GuaranteedUpdate(t.Context(), "", nil, false, nil, func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) {
			<-time.After(2 * patience)
			return nil, nil, nil
		}, nil)
		if err != nil {
			t.Errorf("an update that is admitted after %s: %v", 2*patience, err)
		}
		err = s.Delete(t.Context(), "", nil, nil, func(context.Context, runtime.Object) error {
			<-time.After(2 * patience)
			return nil
		}, nil, storage.DeleteOptions{})
		if err != nil {
			t.Errorf("a deletion that is admitted after %s: %v", 2*patience, err)
		}
	})
}

// slowStorage admits an update, and does not get it written in time.
type slowStorage struct{ brokenStorage }

func (s slowStorage) GuaranteedUpdate(
	_ context.Context, _ string, _ runtime.Object, _ bool, _ *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object,
) error {
	_, _, err := update(&internal.CompositeController{}, storage.ResponseMeta{})
	<-time.After(patience * 7 / 10)
	return errors.Join(err, rpctypes.ErrTimeout)
}

func TestAllTriesOfAWriteShareEtcdsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
		defer cancel()
		began, n := time.Now(), 0
		s := newOutageStorage(slowStorage{}, Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion))
		err := s.GuaranteedUpdate(ctx, "", &internal.CompositeController{}, false, nil,
			func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) {
				n++
				return &internal.CompositeController{Spec: v1alpha1.CompositeControllerSpec{Workers: new(int32(n))}}, nil, nil
			}, nil)
		if took := time.Since(began); !apierrors.IsServiceUnavailable(err) || took > 2*patience {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// awayStorage has an etcd that is away, if away, and a watch cache that serves.
type awayStorage struct {
	storage.Interface

	away bool
}

func (s *awayStorage) read(version string) error {
	if s.away && version == "" {
		return status.Error(codes.Unavailable, "connection refused")
	}
	return nil
}

func (s *awayStorage) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return watch.NewEmptyWatch(), nil
}

func (s *awayStorage) Get(_ context.Context, _ string, o storage.GetOptions, _ runtime.Object) error {
	return s.read(o.ResourceVersion)
}

func (s *awayStorage) GetList(_ context.Context, _ string, o storage.ListOptions, _ runtime.Object) error {
	return s.read(o.ResourceVersion)
}

func TestWhatTheWatchCacheServesIsNoSignOfEtcd(t *testing.T) {
	below := &awayStorage{away: true}
	s := newOutageStorage(below, nil)
	if err := s.Get(t.Context(), "", storage.GetOptions{}, nil); !apierrors.IsServiceUnavailable(err) || !s.doubtful.Load() {
		t.Fatalf("a read from etcd: %v, in doubt: %v", err, s.doubtful.Load())
	}
	for name, read := range map[string]func() error{
		"a watch": func() error {
			w, err := s.Watch(t.Context(), "", storage.ListOptions{})
			w.Stop()
			return err
		},
		"an object": func() error { return s.Get(t.Context(), "", storage.GetOptions{ResourceVersion: "0"}, nil) },
		"a list":    func() error { return s.GetList(t.Context(), "", storage.ListOptions{ResourceVersion: "0"}, nil) },
	} {
		if err := read(); err != nil || !s.doubtful.Load() {
			t.Errorf("%s from the cache: %v, in doubt: %v", name, err, s.doubtful.Load())
		}
	}
	below.away = false
	if err := s.GetList(t.Context(), "", storage.ListOptions{}, nil); err != nil || s.doubtful.Load() {
		t.Errorf("a list from etcd: %v, in doubt: %v", err, s.doubtful.Load())
	}
}

// TestTheAPIServiceIsUnavailableWhileEtcdHasNotServedForLong asks as the kube-apiserver does.
func TestTheAPIServiceIsUnavailableWhileEtcdHasNotServedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		checks := []healthz.HealthChecker{
			healthz.NamedCheck("watch-caches", func(*http.Request) error { return errors.New("not filled") }),
			healthz.NamedCheck(etcdReadiness, func(*http.Request) error {
				if away.Load() {
					return errors.New("connection refused")
				}
				return nil
			}),
		}
		handler := refuseDiscovery(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }), checks)
		get := func(path string) (int, string) {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			return w.Code, w.Body.String()
		}
		for _, step := range []struct {
			reason string
			away   bool
			pass   time.Duration
			path   string
			want   int
		}{
			{"Etcd serves. Other checks are no business of the APIService.", false, time.Minute, discoveryPath, http.StatusOK},
			{"It may be a leader that is elected.", true, time.Minute, discoveryPath, http.StatusOK},
			{"It is none.", true, unavailableAfter, discoveryPath, http.StatusServiceUnavailable},
			{"Some clients write it so.", true, 0, discoveryPath + "/", http.StatusServiceUnavailable},
			{"What the watch cache serves is served.", true, 0, discoveryPath + "/compositecontrollers", http.StatusOK},
			{"It is back.", false, 0, discoveryPath, http.StatusOK},
			{"That is another outage.", true, 0, discoveryPath, http.StatusOK},
		} {
			away.Store(step.away)
			<-time.After(step.pass)
			code, body := get(step.path)
			if code != step.want || code != http.StatusOK && (!strings.Contains(body, "etcd") || !strings.Contains(body, "connection refused")) {
				t.Errorf("%s %s: %d %s, want %d", step.reason, step.path, code, body, step.want)
			}
		}
	})
}

// TestWhatIsTooLargeForEtcdIsToldAsSuch has objects around the limit of a request's body, which is that of etcd's values.
func TestWhatIsTooLargeForEtcdIsToldAsSuch(t *testing.T) {
	const limit = 3 << 19
	s := newOutageStorage(stored(t), Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion))
	for name, tc := range map[string]struct {
		bytes int
		large bool
	}{
		"as large as a body may be":          {limit - 100, false},
		"a larger one, with what is added":   {limit + 100<<10, false},
		"more than the client of etcd takes": {2<<20 + 100, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := object("mine", strings.Repeat("x", tc.bytes))
			o.Name = "large"
			err := s.Create(t.Context(), at+strings.ReplaceAll(name, " ", ""), o, &internal.CompositeController{}, 0)
			if !tc.large {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if got := responsewriters.ErrorToAPIStatus(err); got.Code != http.StatusRequestEntityTooLarge || !strings.Contains(got.Message, "--max-request-bytes") {
				t.Errorf("got %d %q, want 413", got.Code, got.Message)
			}
		})
	}
}

// TestWhatIsTooLargeIsRecognizedByTheGenericServer is about isTooLargeError of its handlers, after which it patches without managed fields.
func TestWhatIsTooLargeIsRecognizedByTheGenericServer(t *testing.T) {
	for name, err := range map[string]error{
		"etcd":       rpctypes.ErrRequestTooLarge,
		"its client": status.Error(codes.ResourceExhausted, "trying to send message larger than max (2097252 vs. 2097152)"),
	} {
		got := broken(t, err).Create(t.Context(), "", &internal.CompositeController{}, nil, 0)
		//nolint:errorlint // It looks at the error itself.
		seen, ok := got.(interface {
			error
			Code() codes.Code
		})
		if !ok || seen.Code() != codes.InvalidArgument || seen.Error() != "etcdserver: request is too large" {
			t.Errorf("%s: got %v", name, got)
		}
		if !apierrors.IsRequestEntityTooLargeError(got) {
			t.Errorf("%s: %v is not told as too large", name, got)
		}
	}
	if got := broken(t, storage.NewKeyNotFoundError("key", 1)).Create(t.Context(), "", &internal.CompositeController{}, nil, 0); apierrors.IsRequestEntityTooLargeError(got) {
		t.Errorf("%v is told as too large", got)
	}
}

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
