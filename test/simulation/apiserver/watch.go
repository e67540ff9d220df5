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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/store"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// Watch is a watch that the server accepted. Its events wait until they are taken.
type Watch struct {
	server  *Server
	queue   *store.Watch
	form    form
	request Request
	number  int
	// failed is an ERROR event that comes before all others.
	failed []byte
	// bookmarks says that the client wants them.
	bookmarks bool
}

// Request returns the request that began the watch.
func (w *Watch) Request() Request { return w.request }

// Group names the group of what is watched, empty for the core group.
func (w *Watch) Group() string { return w.form.version.Kind.Group }

// Resource names the resource that is watched.
func (w *Watch) Resource() string { return w.form.version.Kind.Plural }

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

// Expire ends the watch with an ERROR event that says that its resourceVersion is too old, behind no event that waits.
func (w *Watch) Expire() {
	w.queue.Drop()
	w.failed = expired("The resourceVersion for the provided watch is too old.")
	w.End()
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
	w := &Watch{server: s, form: formOf(r, t.version), request: r, number: s.opened, bookmarks: r.Query.Get("allowWatchBookmarks") == "true"}
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

// EndWatches ends the watches of a resource, of all if group and resource are empty.
func (s *Server) EndWatches(group, resource string) {
	for _, w := range s.Watches() {
		if group == "" && resource == "" || w.Group() == group && w.Resource() == resource {
			w.End()
		}
	}
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
	s.EndWatches(k.Group, k.Plural)
	s.table(k).Restart()
}
