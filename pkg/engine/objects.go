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

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// root is the path of the group's version.
const root = "/apis/" + v1alpha1.GroupName + "/v1alpha1/"

// revisions is the resource whose objects are in the cluster.
const revisions = "controllerrevisions"

// objects are the controller objects of a program. They answer the requests that the manager makes about such objects, in place of an API
// server: lists, watches, and patches of the status and of the finalizers. It is safe for concurrent use.
type objects struct {
	onStatus func(kind, name string, status v1alpha1.ControllerStatus)

	mu      sync.Mutex
	version int64
	// stored are the objects by resource and name.
	stored map[string]map[string]*unstructured.Unstructured
	// watches are those that are open, with the resource of each.
	watches map[*stream]string
}

// kinds are the resources and their kinds.
func kinds() map[string]string {
	return map[string]string{"compositecontrollers": v1alpha1.KindComposite, "decoratorcontrollers": v1alpha1.KindDecorator}
}

func newObjects(list []runtime.Object, onStatus func(kind, name string, status v1alpha1.ControllerStatus)) (*objects, error) {
	o := &objects{onStatus: onStatus, version: 1, stored: map[string]map[string]*unstructured.Unstructured{}, watches: map[*stream]string{}}
	for resource := range kinds() {
		o.stored[resource] = map[string]*unstructured.Unstructured{}
	}
	for _, each := range list {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(each)
		if err != nil {
			return nil, fmt.Errorf("encoding a controller object: %w", err)
		}
		delete(fields, "status")
		u := &unstructured.Unstructured{Object: fields}
		u.SetNamespace("")
		u.SetUID(types.UID(u.GetKind() + "/" + u.GetName())) // The same after a restart, for the events of one controller.
		u.SetGeneration(1)
		u.SetCreationTimestamp(metav1.NewTime(time.Now()))
		u.SetResourceVersion(strconv.FormatInt(o.version, 10))
		// With it the manager looks for parents that have a finalizer which this version of the program does not need.
		u.SetFinalizers([]string{v1alpha1.FinalizerParents})
		o.stored[strings.ToLower(u.GetKind())+"s"][u.GetName()] = u
	}
	return o, nil
}

// wrap has a transport answer requests about controller objects, and pass on those about ControllerRevisions.
func (o *objects) wrap(next http.RoundTripper) http.RoundTripper { return served{o, next} }

type served struct {
	*objects

	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s served) RoundTrip(r *http.Request) (*http.Response, error) {
	_, path, _ := strings.Cut(r.URL.Path, root)
	parts := strings.Split(path, "/")
	resource := parts[0]
	if _, ok := s.stored[resource]; !ok {
		return s.pass(r)
	}
	if r.Body != nil {
		defer r.Body.Close() //nolint:errcheck // It is in memory.
	}
	switch query := r.URL.Query(); {
	case r.Method == http.MethodGet && len(parts) == 1 && query.Get("watch") != "":
		return s.watch(r, resource), nil
	case r.Method == http.MethodGet && len(parts) == 1:
		return respond(r, http.StatusOK, s.list(resource))
	case r.Method == http.MethodPatch && len(parts) > 1:
		patched, err := s.patch(r, resource, parts[1], slices.Contains(parts, "status"))
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
			return respond(r, int(status.ErrStatus.Code), status.ErrStatus)
		}
		if err != nil {
			return nil, err
		}
		return respond(r, http.StatusOK, patched)
	}
	return respond(r, http.StatusMethodNotAllowed, apierrors.NewMethodNotSupported(v1alpha1.Resource(resource), r.Method).ErrStatus)
}

// pass passes a request on. A list that is not found says that the cluster serves no ControllerRevisions, and what to do.
func (s served) pass(r *http.Request) (*http.Response, error) {
	answered, err := s.next.RoundTrip(r)
	if err != nil || answered.StatusCode != http.StatusNotFound || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/"+revisions) {
		return answered, err
	}
	_ = answered.Body.Close() // It was read for nothing.
	return respond(r, http.StatusNotFound, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the cluster serves no ControllerRevisions, which rolling updates keep: apply the CustomResourceDefinition " + revisions + "." +
			v1alpha1.GroupName + ", or choose another update method",
	})
}

func respond(r *http.Request, code int, body any) (*http.Response, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding the response to %s %s: %w", r.Method, r.URL.Path, err)
	}
	return response(r, code, io.NopCloser(bytes.NewReader(encoded))), nil
}

func response(r *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1,
	}
}

func (o *objects) list(resource string) *unstructured.UnstructuredList {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := &unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kinds()[resource] + "List",
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(o.version, 10)},
	}}
	for _, name := range slices.Sorted(maps.Keys(o.stored[resource])) {
		list.Items = append(list.Items, *o.stored[resource][name].DeepCopy())
	}
	return list
}

// watch opens a stream that begins with the objects that are newer than the client's, or with all if it asks for them.
func (o *objects) watch(r *http.Request, resource string) *http.Response {
	query, s := r.URL.Query(), &stream{objects: o, ctx: r.Context(), news: make(chan struct{}, 1), closed: make(chan struct{})}
	initial := query.Get("sendInitialEvents") == "true"
	seen, err := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, each := range o.stored[resource] {
		version, _ := strconv.ParseInt(each.GetResourceVersion(), 10, 64)
		if initial || err != nil || version > seen {
			s.send(watch.Added, each)
		}
	}
	if initial {
		end := &unstructured.Unstructured{}
		end.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kinds()[resource]))
		end.SetResourceVersion(strconv.FormatInt(o.version, 10))
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		s.send(watch.Bookmark, end)
	}
	o.watches[s] = resource
	return response(r, http.StatusOK, s)
}

// patch is what the manager writes of an object: its whole status, or its finalizers.
func (o *objects) patch(r *http.Request, resource, name string, status bool) (*unstructured.Unstructured, error) {
	var body struct {
		Metadata metav1.ObjectMeta         `json:"metadata"`
		Status   v1alpha1.ControllerStatus `json:"status"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, fmt.Errorf("decoding the patch of %s %s: %w", resource, name, err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&body.Status)
	if err != nil {
		return nil, fmt.Errorf("encoding the status of %s %s: %w", resource, name, err)
	}
	o.mu.Lock()
	former := o.stored[resource][name]
	switch version := body.Metadata.ResourceVersion; {
	case former == nil:
		o.mu.Unlock()
		return nil, apierrors.NewNotFound(v1alpha1.Resource(resource), name)
	case version != "" && version != former.GetResourceVersion():
		o.mu.Unlock()
		return nil, apierrors.NewConflict(v1alpha1.Resource(resource), name, errors.New("the object has been modified"))
	}
	next := former.DeepCopy()
	if status {
		next.Object["status"] = fields
	} else {
		next.SetFinalizers(body.Metadata.Finalizers)
	}
	if equality.Semantic.DeepEqual(former, next) {
		o.mu.Unlock()
		return next, nil
	}
	o.version++
	next.SetResourceVersion(strconv.FormatInt(o.version, 10))
	o.stored[resource][name] = next
	for s, of := range o.watches {
		if of == resource {
			s.send(watch.Modified, next)
		}
	}
	o.mu.Unlock()
	if status {
		o.tell(r.Context(), former, next, body.Status)
	}
	return next, nil
}

// tell reports a new status of a controller. The manager writes one status of a controller after the other.
func (o *objects) tell(ctx context.Context, former, next *unstructured.Unstructured, status v1alpha1.ControllerStatus) {
	if o.onStatus != nil {
		o.onStatus(next.GetKind(), next.GetName(), status)
		return
	}
	var before struct {
		Status v1alpha1.ControllerStatus `json:"status"`
	}
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(former.Object, &before) // It was encoded here.
	for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionResourcesServed} {
		was, is := meta.FindStatusCondition(before.Status.Conditions, name), meta.FindStatusCondition(status.Conditions, name)
		if is != nil && news(was, is) {
			klog.FromContext(ctx).Info("Condition "+name+" of a controller changed", "controller", next.GetName(), "controllerKind", next.GetKind(),
				"status", is.Status, "reason", is.Reason, "message", is.Message)
		}
	}
}

// news reports whether the log has a condition that is nil if it was not there before. That resources are served is news if they were not.
func news(was, is *metav1.Condition) bool {
	if is.Type == v1alpha1.ConditionResourcesServed {
		missing := is.Status == metav1.ConditionFalse
		return missing && (was == nil || was.Message != is.Message) || !missing && was != nil && was.Status == metav1.ConditionFalse
	}
	return was == nil || was.Reason != is.Reason
}

// stream is the body of a response to a watch.
type stream struct {
	objects *objects
	ctx     context.Context //nolint:containedctx // It is that of the request, of which the body is a part.
	closed  chan struct{}
	closing sync.Once
	// news has an element after something was sent.
	news chan struct{}
	// unread is what was sent and not read. The lock of objects guards it.
	unread bytes.Buffer
}

// send adds an event. It is called with the lock of objects held.
func (s *stream) send(event watch.EventType, o *unstructured.Unstructured) {
	_ = json.NewEncoder(&s.unread).Encode(map[string]any{"type": event, "object": o}) //nolint:errchkjson // The object was encoded before.
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for {
		if n := s.take(p); n > 0 {
			return n, nil
		}
		select {
		case <-s.news:
		case <-s.closed:
			return 0, io.EOF
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
	}
}

func (s *stream) take(p []byte) int {
	s.objects.mu.Lock()
	defer s.objects.mu.Unlock()
	n, _ := s.unread.Read(p) // It fails if there is nothing.
	return n
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.closing.Do(func() { close(s.closed) })
	s.objects.mu.Lock()
	defer s.objects.mu.Unlock()
	delete(s.objects.watches, s)
	return nil
}
