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

package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
)

//go:embed assets
var assets embed.FS

// mostStreams is how many pages are kept up to date at the same time.
const mostStreams = 8

// mostForm is how many bytes of a form are read: a definition is no larger than what etcd takes.
const mostForm = 2 << 20

// server serves the pages.
type server struct {
	guard

	c        *connection.Connection
	readOnly bool
	pages    *template.Template
	views    map[string]view
	streams  chan struct{}
	handler  http.Handler
}

// view makes the page of an address. Its live pages are made again and again while they are open.
type view func(ctx context.Context, q url.Values) *page

// page is what one address shows.
type page struct {
	Title string
	// Up leads to what the page is a part of.
	Up    []crumb
	Live  bool
	Parts []part
	// Stream is where updates come from, and ReadOnly says that no actions are offered.
	Stream   string
	ReadOnly bool
}

type crumb struct{ Text, Link string }

// part is a section of a page that is replaced as a whole. One without template is empty.
type part struct {
	ID, Template string
	Data         any
	// Problem is shown in place of the data.
	Problem error

	HTML template.HTML
	// Digest is that of the HTML.
	Digest string
}

func newServer(c *connection.Connection, address string, readOnly bool) *server {
	s := &server{guard: newGuard(address), c: c, readOnly: readOnly, streams: make(chan struct{}, mostStreams)}
	s.pages = template.Must(template.New("").Funcs(functions()).ParseFS(assets, "assets/*.html"))
	s.views = map[string]view{"/": s.overview, "/controller": s.controller, "/parent": s.parent, "/hooks": s.hooks(false), "/plan": s.plan, "/confirm": s.confirm}
	mux := http.NewServeMux()
	for path, view := range s.views {
		if path == "/" {
			path = "/{$}"
		}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { s.show(w, r, view(r.Context(), r.URL.Query())) })
	}
	mux.HandleFunc("POST /hooks", s.posted(s.hooks(true)))
	mux.HandleFunc("POST /plan", s.posted(s.edited))
	mux.HandleFunc("POST /act", s.posted(s.act))
	mux.HandleFunc("GET /events", s.follow)
	for _, name := range []string{"style.css", "script.js", "icon.svg"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, assets, "assets/"+name) })
	}
	s.handler = s.protect(mux)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// address is where a page is, with the token.
func (s *server) address(path string) string {
	joint := "?"
	if strings.Contains(path, "?") {
		joint = "&"
	}
	return "http://" + s.hosts[0] + path + joint + "token=" + s.token
}

// posted shows the page for a form.
func (s *server) posted(view view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		if err := r.ParseForm(); err != nil {
			http.Error(w, "The form cannot be read: "+err.Error(), http.StatusBadRequest)
			return
		}
		s.show(w, r, view(r.Context(), r.PostForm))
	}
}

// show writes a page.
func (s *server) show(w http.ResponseWriter, r *http.Request, p *page) {
	p.ReadOnly = s.readOnly
	if p.Live {
		p.Stream = link("/events", "page", r.URL.RequestURI())
	}
	for i := range p.Parts {
		s.fill(&p.Parts[i])
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(s.render("page", p))) // Who does not wait for it loads it again.
}

// fill makes the HTML of a part.
func (s *server) fill(p *part) {
	switch {
	case p.Problem != nil:
		p.HTML = s.render("problem", problemOf(p.Problem))
	case p.Template != "":
		p.HTML = s.render(p.Template, p.Data)
	}
	sum := sha256.Sum256([]byte(p.HTML))
	p.Digest = hex.EncodeToString(sum[:8])
}

// render executes a template, which escapes all data. Characters that show as nothing, or turn the text around, are replaced.
func (s *server) render(name string, data any) template.HTML {
	var b bytes.Buffer
	if err := s.pages.ExecuteTemplate(&b, name, data); err != nil {
		return template.HTML(template.HTMLEscapeString("This part of the page cannot be shown: " + err.Error())) //nolint:gosec // It is escaped.
	}
	return template.HTML(strings.Map(visible, strings.ToValidUTF8(b.String(), "\uFFFD"))) //nolint:gosec // The template has escaped it.
}

// verbatim escapes a text that comes back from a form. Render leaves what shows as nothing in it: there are references to such characters.
func verbatim(text string) template.HTML {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(text, "\uFFFD") {
		if unicode.Is(unicode.Cf, r) {
			fmt.Fprintf(&b, "&#%d;", r)
		} else {
			b.WriteString(template.HTMLEscapeString(string(r)))
		}
	}
	return template.HTML(b.String()) //nolint:gosec // It is escaped.
}

func visible(r rune) rune {
	if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
		return unicode.ReplacementChar
	}
	return r
}

// problem is why something is not shown.
type problem struct {
	// Definitions says that nothing failed: the cluster has no API server that could answer.
	Forbidden, Definitions bool
	Message                string
}

func problemOf(err error) problem {
	return problem{
		Forbidden:   apierrors.IsForbidden(err),
		Definitions: errors.Is(err, subresource.ErrDefinitions),
		Message:     err.Error(),
	}
}

// link is an address of a page with its parameters, which are given as names and values. Those that are empty are left out.
func link(path string, parameters ...string) string {
	query := url.Values{}
	for i := 0; i+1 < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			query.Set(parameters[i], parameters[i+1])
		}
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}
