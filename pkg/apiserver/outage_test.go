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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	internal "github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
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
