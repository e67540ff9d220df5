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
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	optionvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/store"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// form is how objects are sent.
type form struct {
	version *kinds.Version
	// metadata says that only the metadata is sent.
	metadata bool
	// item says that kind and version are left away, as in lists of kinds with a Go type.
	item bool
}

// formOf returns the form that a request accepts.
func formOf(r Request, v *kinds.Version) form {
	return form{version: v, metadata: strings.Contains(r.Accept, "as=PartialObjectMetadata")}
}

// view returns an object in a version.
func (s *Server) view(o *store.Object, v *kinds.Version) value.Object {
	return o.Memo(v, func() any { return v.Read(o.Content) }).(value.Object) //nolint:forcetypeassert // Nothing else is under this key.
}

// encoded returns the JSON of an object in a version.
func (s *Server) encoded(o *store.Object, v *kinds.Version) []byte {
	return s.bytes(o, form{version: v})
}

// bytes returns the JSON of an object in a form.
func (s *Server) bytes(o *store.Object, f form) []byte {
	return o.Memo(f, func() any { return f.encode(s.view(o, f.version)) }).([]byte) //nolint:forcetypeassert // Nothing else is under this key.
}

func (f form) encode(o value.Object) []byte {
	switch {
	case f.metadata:
		return value.Encode(value.Object{kindField: "PartialObjectMetadata", apiVersionField: "meta.k8s.io/v1", "metadata": o["metadata"]})
	case f.item:
		o = value.Shallow(o)
		delete(o, "apiVersion")
		delete(o, "kind")
	}
	return value.Encode(o)
}

func (s *Server) notFound(t target) error {
	return apierrors.NewNotFound(t.kind().GroupResource(), t.name)
}

func (s *Server) get(r Request, t target) Response {
	o := s.table(t.kind()).Get(store.Key{Namespace: t.namespace, Name: t.name})
	if o == nil {
		return failure(s.notFound(t))
	}
	return Response{Code: http.StatusOK, ContentType: jsonType, Body: s.bytes(o, formOf(r, t.version))}
}

// selection is what a list or watch selects.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func newSelection(r Request, t target) (selection, error) {
	chosen := selection{namespace: t.namespace, labels: labels.Everything(), fields: fields.Everything()}
	var err error
	if text := r.Query.Get("labelSelector"); text != "" {
		if chosen.labels, err = labels.Parse(text); err != nil {
			return chosen, apierrors.NewBadRequest(err.Error())
		}
	}
	if text := r.Query.Get("fieldSelector"); text != "" {
		if chosen.fields, err = fields.ParseSelector(text); err != nil {
			return chosen, apierrors.NewBadRequest(err.Error())
		}
		for _, requirement := range chosen.fields.Requirements() {
			if !t.kind().Selectable(requirement.Field) {
				return chosen, unknownField(t, requirement.Field)
			}
		}
	}
	return chosen, nil
}

func unknownField(t target, name string) error {
	if t.kind().Custom {
		return apierrors.NewBadRequest("field label not supported: " + name)
	}
	return apierrors.NewBadRequest(fmt.Sprintf(`%q is not a known field selector: only "metadata.name", "metadata.namespace"`, name))
}

// matches returns what decides whether an object is selected, nil if all are.
func (c selection) matches() func(*store.Object) bool {
	if c.namespace == "" && c.labels.Empty() && c.fields.Empty() {
		return nil
	}
	return func(o *store.Object) bool {
		return (c.namespace == "" || o.Namespace == c.namespace) &&
			(c.labels.Empty() || c.labels.Matches(labels.Set(o.Labels))) && (c.fields.Empty() || c.fields.Matches(fieldsOf{o}))
	}
}

// fieldsOf are the fields of an object that selectors may name.
type fieldsOf struct{ object *store.Object }

func (f fieldsOf) Has(string) bool { return true }

func (f fieldsOf) Get(field string) string {
	return value.String(f.object.Content, strings.Split(field, ".")...)
}

// checkList says what is wrong with the parameters of a list or watch.
func checkList(r Request) error {
	send, match := r.Query.Get("sendInitialEvents"), r.Query.Get("resourceVersionMatch")
	if send == "" && match == "" {
		return nil
	}
	options := internalversion.ListOptions{
		Watch: r.Query.Get("watch") == isTrue || r.Query.Get("watch") == "1", ResourceVersion: r.Query.Get("resourceVersion"),
		ResourceVersionMatch: metav1.ResourceVersionMatch(match), Continue: r.Query.Get("continue"),
	}
	if send != "" {
		options.SendInitialEvents = new(send == "true" || send == "1")
	}
	if errs := optionvalidation.ValidateListOptions(&options, true); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return nil
}

func (s *Server) list(r Request, t target) Response {
	chosen, err := newSelection(r, t)
	if err != nil {
		return failure(err)
	}
	if err := checkList(r); err != nil {
		return failure(err)
	}
	if _, err := s.wanted(r); apierrors.IsTimeout(err) {
		return failure(err)
	} else if err != nil {
		return failure(apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err)))
	}
	f := formOf(r, t.version)
	kind, apiVersion := t.kind().ListKind, t.version.APIVersion()
	if f.metadata {
		kind, apiVersion = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	f.item = !t.kind().Custom && !f.metadata
	meta := value.Object{"resourceVersion": text(s.store.Revision())}
	if t.kind().Custom && !f.metadata {
		meta["continue"] = ""
	}
	body := value.Append(nil, value.Object{"apiVersion": apiVersion, kindField: kind, "metadata": meta})
	body = append(body[:len(body)-1], `,"items":[`...)
	matches, empty := chosen.matches(), true
	for _, o := range s.table(t.kind()).In(t.namespace) {
		if matches != nil && !matches(o) {
			continue
		}
		if !empty {
			body = append(body, ',')
		}
		empty, body = false, append(body, s.bytes(o, f)...)
	}
	return Response{Code: http.StatusOK, ContentType: jsonType, Body: append(body, "]}"...)}
}

func badRevision(given string) error {
	return fmt.Errorf("resourceVersion: Invalid value: %q: strconv.ParseUint: parsing %q: invalid syntax", given, given)
}

// wanted returns the resourceVersion of a list or watch, 0 for any.
func (s *Server) wanted(r Request) (int64, error) {
	given := r.Query.Get("resourceVersion")
	if given == "" || given == "0" {
		return 0, nil
	}
	revision, err := strconv.ParseInt(given, 10, 64)
	if err != nil {
		return 0, badRevision(given)
	}
	if revision > s.store.Revision() {
		return 0, storage.NewTooLargeResourceVersionError(uint64(revision), uint64(s.store.Revision()), 1)
	}
	return revision, nil
}

// Watch is a watch that the server accepted. Its events wait until they are taken.
type Watch struct {
	server *Server
	queue  *store.Watch
	form   form
	number int
	// failed is an ERROR event that comes before all others.
	failed []byte
	// bookmarks says that the client wants them.
	bookmarks bool
}

// Pending returns the number of events that wait.
func (w *Watch) Pending() int {
	if w.failed != nil {
		return 1 + w.queue.Pending()
	}
	return w.queue.Pending()
}

// Next takes the next event, as a line of JSON with its newline. It returns false if none waits.
func (w *Watch) Next() ([]byte, bool) {
	if w.failed != nil {
		line := w.failed
		w.failed = nil
		return line, true
	}
	n, ok := w.queue.Next()
	if !ok {
		return nil, false
	}
	return event(n.Type, w.content(n)), true
}

// Ended reports whether the server has ended the watch, so that nothing follows the events that wait.
func (w *Watch) Ended() bool { return w.queue.Ended() }

// Close ends the watch on the side of the client.
func (w *Watch) Close() {
	w.queue.End()
	w.queue.Drop()
	w.failed = nil
	delete(w.server.watches, w)
}

// Bookmark queues a bookmark with the newest resourceVersion, if the client wants bookmarks.
func (w *Watch) Bookmark() {
	if w.bookmarks {
		w.queue.Bookmark(false)
	}
}

// End ends the watch on the side of the server. Events that wait can still be taken.
func (w *Watch) End() {
	w.queue.End()
	delete(w.server.watches, w)
}

// content returns the object of an event.
func (w *Watch) content(n store.Notice) []byte {
	if n.Type == apiwatch.Bookmark {
		return w.bookmark(n)
	}
	if n.Object.Revision == n.Revision {
		return w.server.bytes(n.Object, w.form)
	}
	o := value.Shallow(w.server.view(n.Object, w.form.version))
	meta := value.Shallow(value.Map(o, "metadata"))
	meta["resourceVersion"] = text(n.Revision)
	o["metadata"] = meta
	return w.form.encode(o)
}

func (w *Watch) bookmark(n store.Notice) []byte {
	meta := value.Object{"resourceVersion": text(n.Revision)}
	if n.Initial {
		meta["annotations"] = value.Object{metav1.InitialEventsAnnotationKey: isTrue}
	}
	o := w.form.version.Empty()
	o["metadata"] = meta
	return w.form.encode(o)
}

func event(kind apiwatch.EventType, content []byte) []byte {
	line := make([]byte, 0, len(content)+32)
	line = append(line, `{"type":"`...)
	line = append(line, kind...)
	line = append(line, `","object":`...)
	line = append(line, content...)
	return append(line, "}\n"...)
}

func expired(message string) []byte {
	status := apierrors.NewResourceExpired(message).ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return event(apiwatch.Error, statusBody(&status))
}

func (s *Server) watch(r Request, t target) Response {
	chosen, err := newSelection(r, t)
	if err != nil {
		return failure(err)
	}
	if err := checkList(r); err != nil {
		return failure(err)
	}
	initial, given := r.Query.Get("sendInitialEvents"), r.Query.Get("resourceVersion")
	revision, err := strconv.ParseInt("0"+given, 10, 64)
	if err != nil {
		return failure(badRevision(given))
	}
	w := &Watch{server: s, form: formOf(r, t.version), number: s.opened, bookmarks: r.Query.Get("allowWatchBookmarks") == "true"}
	w.queue = s.table(t.kind()).Watch(chosen.matches())
	s.opened++
	s.watches[w] = struct{}{}
	switch {
	case initial == "true" || initial == "" && revision == 0:
		w.queue.AddAll()
		if initial != "" && w.bookmarks {
			w.queue.Bookmark(true)
		}
	case revision > 0 && !w.queue.Replay(revision):
		w.failed = expired(fmt.Sprintf("too old resource version: %d (%d)", revision, s.store.Revision()))
		w.End()
	}
	return Response{Code: http.StatusOK, ContentType: jsonType, Watch: w}
}

// Watches returns the watches that have not ended, oldest first.
func (s *Server) Watches() []*Watch {
	all := make([]*Watch, 0, len(s.watches))
	for w := range s.watches {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *Watch) int { return a.number - b.number })
	return all
}

// Bookmark queues a bookmark for every watch that wants them.
func (s *Server) Bookmark() {
	for _, w := range s.Watches() {
		w.Bookmark()
	}
}

// endWatchesOf ends the watches of a kind, whose definition has changed: its objects may have another form under the same version, so that who
// watches on has to list them.
func (s *Server) endWatchesOf(k *kinds.Kind) {
	for _, w := range s.Watches() {
		if w.form.version.Kind.GroupResource() == k.GroupResource() {
			w.End()
		}
	}
	s.table(k).Restart()
}
