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
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

const (
	// retryElsewhere is after how many seconds a client asks again that another replica can answer.
	retryElsewhere = 2
	// endingPause is the least time between two connections that are ended. It is less than that of a client's repetitions, so that each of ten may
	// reach another replica.
	endingPause = retryElsewhere*time.Second - 100*time.Millisecond
)

// leadElsewhere has clients ask again whose request the controllers of another replica can answer. The kube-apiserver keeps its connections, so
// that the same replica would be asked for ever: its connection ends with the response, and the next request may reach the one that leads.
// Clients of client-go, such as kubectl, repeat a request ten times that is refused with Retry-After, unless its body is a stream, as that of
// kubectl create --raw is.
//
// All clients share that connection. Those whose writes are sent at the moment of its end get 503 from the kube-apiserver, so it is not ended
// where no other replica can answer, nor for each of many requests.
func leadElsewhere(api http.Handler, engine *inspection.Link) http.Handler {
	if engine == nil {
		return api
	}
	ended := &rate.Sometimes{Interval: endingPause}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && asksControllers(info) {
			if _, here := engine.Engine(); !here {
				_, anywhere := engine.Absence()
				w = responsewriter.WrapForHTTP1Or2(&elsewhere{w, anywhere, ended})
			}
		}
		api.ServeHTTP(w, r)
	})
}

// asksControllers reports whether a request is for one of the subresources that only the replica that runs the controllers has.
func asksControllers(i *request.RequestInfo) bool {
	return ofControllers(i) && i.Subresource != "" && i.Subresource != "status"
}

// elsewhere is the response of a replica that does not run the controllers.
type elsewhere struct {
	http.ResponseWriter

	// anywhere says that one does, or will.
	anywhere bool
	ended    *rate.Sometimes
}

// WriteHeader implements http.ResponseWriter.
func (e *elsewhere) WriteHeader(code int) {
	if code == http.StatusServiceUnavailable && e.anywhere {
		e.Header().Set("Retry-After", strconv.Itoa(retryElsewhere))
		e.ended.Do(func() { e.Header().Set("Connection", "close") }) // In HTTP/2 it is no header, and has the server send GOAWAY.
	}
	e.ResponseWriter.WriteHeader(code)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (e *elsewhere) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// unavailableAfter is for how long etcd must not have served before the APIService says so. It is the time after which Kubernetes takes a Pod that
// is not ready out of its Service, with the manifests' probes, which has the same effect; no election of a leader takes as long.
const unavailableAfter = 15 * time.Second

// discoveryPath is where the kube-apiserver looks whether the APIService is available, at least every 30 seconds.
var discoveryPath = "/apis/" + v1alpha1.SchemeGroupVersion.String() //nolint:gochecknoglobals // It does not change.

// etcdReadiness is the check of the generic API server that says whether etcd serves.
const etcdReadiness = "etcd-readiness"

// refuseDiscovery refuses the list of the version's resources while etcd has not served for long, so that the condition Available of the APIService
// becomes False. A server that runs outside of the cluster has no readiness probe to do that.
func refuseDiscovery(api http.Handler, checks []healthz.HealthChecker) http.Handler {
	etcd := &lasting{checks: slices.DeleteFunc(slices.Clone(checks), func(c healthz.HealthChecker) bool { return c.Name() != etcdReadiness })}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.TrimSuffix(r.URL.Path, "/") == discoveryPath {
			if err := etcd.failure(r, time.Now()); err != nil {
				refusal := apierrors.NewServiceUnavailable("the etcd of this server does not serve at present: " + err.Error())
				responsewriters.ErrorNegotiated(refusal, jsonOnly{Codecs}, v1alpha1.SchemeGroupVersion, w, r)
				return
			}
		}
		api.ServeHTTP(w, r)
	})
}

// lasting finds failures of checks that last.
type lasting struct {
	checks []healthz.HealthChecker

	mu sync.Mutex
	// since is when the first check failed after the last one that passed; zero if that passed.
	since time.Time
	// told says that the log has it.
	told bool
}

// failure returns what a check fails with, nil if all pass or have failed for a short time only.
func (l *lasting) failure(r *http.Request, now time.Time) error {
	var failed error
	for _, check := range l.checks {
		if failed = check.Check(r); failed != nil {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case failed == nil:
		l.since, l.told = time.Time{}, false
	case l.since.IsZero():
		l.since = now
	case now.Sub(l.since) >= unavailableAfter:
		if !l.told {
			klog.FromContext(r.Context()).Error(failed, "Etcd has not served for long, and the APIService becomes unavailable")
			l.told = true
		}
		return failed
	}
	return nil
}

// A duration such as 1d, which the schema of Metacontroller's CRDs admitted (docs/reference/contract.md#s1.5), does not decode, and neither
// the decoder of JSON nor the conversion of an applied object knows in which field it was. The two wrappers here do.

// durationNaming decodes objects with errors that name the field.
type durationNaming struct {
	runtime.Decoder
}

// Decode decodes data.
func (d durationNaming) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		if bad := validation.Malformed(data); len(bad) > 0 {
			err = bad.ToAggregate()
		}
	}
	return object, gvk, err
}

// nameDurations answers server-side apply of a controller with bad durations, and passes on everything else: ControllerRevisions have fields of
// other kinds. A body of more than limit bytes is not looked at: it is refused further on.
func nameDurations(next http.Handler, limit int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.APIGroup != v1alpha1.GroupName || info.Resource == "controllerrevisions" || !isApply(r) {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
		if bad := validation.Malformed(body); err == nil && len(bad) > 0 {
			invalid := apierrors.NewInvalid(schema.GroupKind{Group: info.APIGroup, Kind: info.Resource}, info.Name, bad)
			gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
			responsewriters.ErrorNegotiated(invalid, Codecs, gv, w, r)
			return
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		next.ServeHTTP(w, r)
	})
}

func isApply(r *http.Request) bool {
	if r.Method != http.MethodPatch {
		return false
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && types.PatchType(media) == types.ApplyYAMLPatchType
}

// warnOfOldStatus warns those who read controllers when no engine runs: nobody else writes their status, and a condition Ready that was True
// says nothing any more. kubectl prints the warning.
func warnOfOldStatus(api http.Handler, engine *inspection.Link) http.Handler {
	if engine == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && readsControllers(info) {
			if why, anywhere := engine.Absence(); !anywhere {
				warning.AddWarning(r.Context(), "", "the status of controllers may be from before: "+why)
			}
		}
		api.ServeHTTP(w, r)
	})
}

func readsControllers(i *request.RequestInfo) bool {
	return ofControllers(i) && i.Subresource == "" && (i.Verb == "get" || i.Verb == "list")
}

// ofControllers reports whether a request is about CompositeControllers or DecoratorControllers, or about a subresource of one.
func ofControllers(i *request.RequestInfo) bool {
	return i.IsResourceRequest && i.APIGroup == v1alpha1.GroupName && (i.Resource == "compositecontrollers" || i.Resource == "decoratorcontrollers")
}
