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
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

const (
	composites = "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers"
	decorators = "/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers"
	// hostile is a text that tries to be more than a text: markup, a script, an attribute, and a character that turns the text around.
	hostile = `<script>alert(1)</script><img src=x onerror=alert(2)>"'&{{.}}` + "\u202egnp.exe\u0007"
)

// quoted is a text in JSON.
func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err) // A text can be encoded.
	}
	return string(encoded)
}

// cluster is one with a controller, whose hook and parent say what is hostile.
func cluster() connectiontest.Documents {
	object := `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"web","generation":1},"spec":{` +
		`"parentResource":{"apiVersion":"example.com/v1","resource":"sites"},"hooks":{"sync":{"webhook":{"url":"http://h/"}}}},"status":{` +
		`"conditions":[{"type":"Ready","status":"False","reason":"HookFailing","observedGeneration":1,"lastTransitionTime":"2026-01-02T03:04:05Z","message":` + quoted(hostile) + `}],` +
		`"hooks":[{"name":"sync","calls":3,"lastFailureTime":"2026-01-02T03:04:05Z","lastFailure":` + quoted(hostile) + `}]}}`
	reference := `"group":"example.com","resource":"sites","namespace":"shop","name":` + quoted(hostile)
	return connectiontest.Documents{
		composites:                   `{"kind":"CompositeControllerList","items":[` + object + `]}`,
		composites + "/web":          object,
		decorators:                   `{"kind":"DecoratorControllerList","items":[]}`,
		composites + "/web/parents":  `{"hidden":2,"items":[{` + reference + `,"state":"Failing","lastError":` + quoted(hostile) + `}]}`,
		composites + "/web/resync":   `{"status":{"parents":1}}`,
		composites + "/web/rollback": `{"status":{"from":"a","revision":"b","resourceVersion":"7","changes":[{"path":"spec.x","observed":` + quoted(hostile) + `}]}}`,
		composites + "/web/plan": `{"status":{"summary":{"parents":1,"changing":1},"parents":[{` + reference +
			`,"children":[{"apiVersion":"v1","kind":"ConfigMap","name":"c","action":"Update","changes":[{"path":"data.x","observed":"\"1\"","desired":` + quoted(quoted(hostile)) + `}]}]}]}}`,
		composites + "/web/request": `{"items":[{"hook":"sync","body":{"parent":` + quoted(hostile) + `},"response":{"status":` + quoted(hostile) + `}}]}`,
		composites + "/web/syncs": `{"items":[{` + reference + `,"time":"2026-01-02T03:04:05.000000Z","hookMilliseconds":5,"durationMilliseconds":9,"error":` + quoted(hostile) +
			`,"triggers":[{"reason":"SpecChanged","fields":[` + quoted(hostile) + `]}],"children":[{"resource":"configmaps","kind":"ConfigMap","name":` + quoted(hostile) +
			`,"action":"Update","fields":["data.x"],"changedBackBy":[` + quoted(hostile) + `]}]}]}`,
	}
}

// recorder counts the requests to a cluster, which it lets pass.
type recorder struct {
	http.Handler

	mu       sync.Mutex
	requests []string
}

func (c *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.requests = append(c.requests, r.Method+" "+r.URL.Path)
	c.mu.Unlock()
	c.Handler.ServeHTTP(w, r)
}

func (c *recorder) count(prefix string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, request := range c.requests {
		if strings.HasPrefix(request, prefix) {
			n++
		}
	}
	return n
}

// start serves a dashboard of a cluster, and returns it with a browser that has its cookie.
func start(t *testing.T, of http.Handler, readOnly bool) (*server, *http.Client) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := connectiontest.New(t, of, genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})
	s := newServer(c, listener.Addr().String(), readOnly)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- serve(ctx, listener, s) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	browser := &http.Client{Jar: newJar(t), Timeout: time.Minute}
	if status, _, _ := get(t, browser, s.address("/")); status != http.StatusOK {
		t.Fatalf("the address is answered with %d", status)
	}
	return s, browser
}

func get(t *testing.T, browser *http.Client, address string, edits ...func(*http.Request)) (status int, body string, header http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, browser, request, edits)
}

func post(t *testing.T, browser *http.Client, s *server, path string, form url.Values, edits ...func(*http.Request)) (status int, body string, header http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.hosts[0]+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", "http://"+s.hosts[0])
	return do(t, browser, request, edits)
}

func do(t *testing.T, browser *http.Client, request *http.Request, edits []func(*http.Request)) (status int, body string, header http.Header) {
	t.Helper()
	for _, edit := range edits {
		edit(request)
	}
	response, err := browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), response.Header
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func TestOnlyTheUsersBrowserIsAnswered(t *testing.T) {
	requests := &recorder{Handler: cluster()}
	s, browser := start(t, requests, false)
	_, port, _ := strings.Cut(s.hosts[0], ":")
	stranger := &http.Client{}
	for name, tc := range map[string]struct {
		browser *http.Client
		path    string
		edits   []func(*http.Request)
		want    int
	}{
		"the user":                           {browser, "/", nil, http.StatusOK},
		"the user, as a link is followed":    {browser, "/controller?c=cc/web", []func(*http.Request){header("Sec-Fetch-Site", "same-origin")}, http.StatusOK},
		"no cookie":                          {stranger, "/", nil, http.StatusForbidden},
		"no cookie, the style":               {stranger, "/style.css", nil, http.StatusForbidden},
		"no cookie, the updates":             {stranger, "/events?page=/", nil, http.StatusForbidden},
		"a wrong token":                      {stranger, "/?token=wrong", nil, http.StatusForbidden},
		"an empty token":                     {stranger, "/?token=", nil, http.StatusForbidden},
		"a wrong cookie":                     {stranger, "/", []func(*http.Request){header("Cookie", s.cookie+"=wrong")}, http.StatusForbidden},
		"a name that points at 127.0.0.1":    {browser, "/", []func(*http.Request){host("evil.example.com:" + port)}, http.StatusForbidden},
		"another port":                       {browser, "/", []func(*http.Request){host("127.0.0.1:1")}, http.StatusForbidden},
		"a page of another origin":           {browser, "/", []func(*http.Request){header("Origin", "http://evil.example.com")}, http.StatusForbidden},
		"a page at another port of the host": {browser, "/", []func(*http.Request){header("Sec-Fetch-Site", "same-site")}, http.StatusForbidden},
		"such a page with a wrong token":     {browser, "/?token=x", []func(*http.Request){header("Sec-Fetch-Site", "same-site")}, http.StatusForbidden},
		"a page without origin":              {browser, "/", []func(*http.Request){header("Origin", "null")}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			status, body, header := get(t, tc.browser, "http://"+s.hosts[0]+tc.path, tc.edits...)
			if status != tc.want {
				t.Errorf("got %d, want %d", status, tc.want)
			}
			if tc.want == http.StatusForbidden && (strings.Contains(body, "<html") || header.Get("Set-Cookie") != "") {
				t.Errorf("it is given something: %v %s", header, body)
			}
			for name, want := range headers {
				if header.Get(name) != want {
					t.Errorf("%s is %q", name, header.Get(name))
				}
			}
		})
	}
}

func TestTheTokenIsExchangedForACookie(t *testing.T) {
	s, _ := start(t, cluster(), false)
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	status, _, header := get(t, browser, s.address("/controller?c=cc/web"))
	if location := header.Get("Location"); status != http.StatusSeeOther || location != "/controller?c=cc%2Fweb" {
		t.Errorf("got %d to %q", status, location)
	}
	if cookie := header.Get("Set-Cookie"); !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") || strings.Contains(cookie, s.token) {
		t.Errorf("the cookie is %q", cookie)
	}
	if _, _, header := get(t, browser, "http://"+s.hosts[0]+"//evil.example.com/?token="+s.token); strings.HasPrefix(header.Get("Location"), "//") {
		t.Errorf("it leads to another host: %q", header.Get("Location"))
	}
}

func TestFormsOfOtherPagesDoNothing(t *testing.T) {
	form := url.Values{"action": {"resync"}, "c": {"cc/web"}}
	for name, tc := range map[string]struct {
		readOnly bool
		edits    []func(*http.Request)
		status   int
		writes   int
	}{
		"its own":                   {false, nil, http.StatusOK, 1},
		"of another origin":         {false, []func(*http.Request){header("Origin", "http://evil.example.com")}, http.StatusForbidden, 0},
		"of another port":           {false, []func(*http.Request){header("Origin", "http://127.0.0.1:1")}, http.StatusForbidden, 0},
		"of nobody":                 {false, []func(*http.Request){func(r *http.Request) { r.Header.Del("Origin") }}, http.StatusForbidden, 0},
		"with a token":              {false, []func(*http.Request){header("Origin", "null")}, http.StatusForbidden, 0},
		"its own, with --read-only": {true, nil, http.StatusOK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			requests := &recorder{Handler: cluster()}
			s, browser := start(t, requests, tc.readOnly)
			status, body, _ := post(t, browser, s, "/act", form, tc.edits...)
			if got := requests.count("POST "); status != tc.status || got != tc.writes {
				t.Errorf("got %d and %d writes, want %d and %d: %s", status, got, tc.status, tc.writes, body)
			}
		})
	}
}

func TestHostileTextsAreTexts(t *testing.T) {
	s, browser := start(t, cluster(), false)
	parent := url.Values{"c": {"cc/web"}, "resource": {"sites.example.com"}, "ns": {"shop"}, "name": {hostile}}
	with := func(name, value string) url.Values {
		more := url.Values{name: {value}}
		maps.Copy(more, parent)
		return more
	}
	for name, tc := range map[string]struct {
		path string
		form url.Values // It is posted.
	}{
		"controllers":       {"/", nil},
		"a controller":      {"/controller?c=cc/web", nil},
		"a search":          {link("/controller", "c", "cc/web", "q", hostile, "ns", hostile, "state", hostile), nil},
		"a parent":          {"/parent?" + parent.Encode(), nil},
		"requests":          {"/hooks?" + parent.Encode(), nil},
		"a plan":            {"/plan?" + parent.Encode(), nil},
		"an edited plan":    {"/plan", with("definition", hostile)},
		"a rollback":        {"/confirm?" + with("action", "rollback").Encode(), nil},
		"an unknown action": {"/confirm?" + with("action", hostile).Encode(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var body string
			if tc.form != nil {
				_, body, _ = post(t, browser, s, tc.path, tc.form)
			} else {
				_, body, _ = get(t, browser, "http://"+s.hosts[0]+tc.path)
			}
			for _, forbidden := range []string{"<script>alert", "<img src=x", "\u202e", "\u0007", "cannot be shown"} {
				if strings.Contains(body, forbidden) {
					t.Errorf("there is %q in\n%s", forbidden, body)
				}
			}
			if !strings.Contains(body, "alert(") {
				t.Errorf("the text is not shown:\n%s", body)
			}
		})
	}
}

// TestADefinitionIsPlannedAsItWasEdited posts a definition as browsers do, and then what the response has in its place.
func TestADefinitionIsPlannedAsItWasEdited(t *testing.T) {
	const definition = "apiVersion: metacontroller.k8s.io/v1alpha1\r\nkind: CompositeController\r\nmetadata:\r\n  name: web\r\n  annotations:\r\n    who: '%s'\r\n" +
		"spec:\r\n  parentResource: {apiVersion: example.com/v1, resource: sites}\r\n  hooks: {sync: {webhook: {url: 'http://h/'}}}\r\n"
	for name, who := range map[string]string{
		"plain":                           "a",
		"markup":                          `</textarea><b>&amp;"`,
		"an emoji of several":             "\U0001F469\u200d\U0001F4BB",
		"Persian":                         "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
		"what would turn the text around": "\u202egnp.exe",
	} {
		t.Run(name, func(t *testing.T) {
			var bodies []string
			s, browser := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					bodies = append(bodies, string(body))
					r.Body = io.NopCloser(strings.NewReader(string(body)))
				}
				cluster().ServeHTTP(w, r)
			}), false)
			text := fmt.Sprintf(definition, who)
			for range 2 {
				_, body, _ := post(t, browser, s, "/plan", url.Values{
					"c": {"cc/web"}, "resource": {"sites.example.com"}, "ns": {"shop"}, "name": {"p"}, "definition": {text},
				})
				_, area, found := strings.Cut(body, "<textarea")
				_, area, _ = strings.Cut(area, ">")
				area, _, closed := strings.Cut(area, "</textarea>")
				if !found || !closed || strings.ContainsAny(area, "\r\u202e\u200d") {
					t.Fatalf("no text to be edited in %s", body)
				}
				text = strings.ReplaceAll(html.UnescapeString(area), "\n", "\r\n")
			}
			if len(bodies) != 2 || bodies[0] != bodies[1] || !strings.Contains(bodies[0], quoted(who)) {
				t.Errorf("planned with %q", bodies)
			}
		})
	}
}

func TestForbiddenIsNotEmpty(t *testing.T) {
	forbidden := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"%s is forbidden","reason":"Forbidden","code":403}`, r.URL.Path)
	})
	s, browser := start(t, forbidden, false)
	for _, path := range []string{"/", "/controller?c=cc/web", "/parent?c=cc/web&resource=sites.example.com&ns=shop&name=a", "/plan?c=cc/web&resource=sites.example.com&ns=shop&name=a"} {
		if _, body, _ := get(t, browser, "http://"+s.hosts[0]+path); !strings.Contains(body, "Forbidden") || !strings.Contains(body, "kubectl auth can-i") {
			t.Errorf("%s does not say it:\n%s", path, body)
		}
	}
	s, browser = start(t, cluster(), false)
	if _, body, _ := get(t, browser, "http://"+s.hosts[0]+"/controller?c=cc/web"); !strings.Contains(body, "2 parents are left out") {
		t.Errorf("parents that are hidden are not counted:\n%s", body)
	}
}

// TestDefinitionsAreNoFailure shows what is said where no API server answers for parents, plans and syncs.
func TestDefinitionsAreNoFailure(t *testing.T) {
	documents := cluster()
	served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, composites+"/web/") {
			documents.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found",`+
			`"details":{"name":"web","group":"metacontroller.k8s.io","kind":"compositecontrollers"}}`)
	})
	s, browser := start(t, served, false)
	for path, subresource := range map[string]string{
		"/controller?c=cc/web": "parents",
		"/parent?c=cc/web&resource=sites.example.com&ns=shop&name=a": "parents",
		"/plan?c=cc/web&resource=sites.example.com&ns=shop&name=a":   "plan",
		"/hooks?c=cc/web&resource=sites.example.com&ns=shop&name=a":  "request",
	} {
		want := "<div class=\"problem\">\n<p><bdi>the cluster serves controllers by CustomResourceDefinitions, and &#39;" + subresource + "&#39; needs the API server"
		if _, body, _ := get(t, browser, "http://"+s.hosts[0]+path); !strings.Contains(body, want) {
			t.Errorf("%s does not say it, or calls it a failure:\n%s", path, body)
		}
	}
}

// TestFailingControllersAreFirst has one that fails by its status, one that fails by its parents of now, and more that are ready than a page has.
func TestFailingControllersAreFirst(t *testing.T) {
	object := func(name, ready, reason string) string {
		return `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"` + name + `"},"status":{"conditions":[` +
			`{"type":"Ready","status":"` + ready + `","reason":"` + reason + `"}]}}`
	}
	var objects []string
	for i := range controllersOfAPage {
		objects = append(objects, object(fmt.Sprintf("a%02d", i), "True", "Running"))
	}
	objects = append(objects, object("broken", "False", "HookFailing"), object("pending", "Unknown", "Pending"), object("paused", "False", "Paused"))
	documents := connectiontest.Documents{
		composites:                  `{"kind":"CompositeControllerList","items":[` + strings.Join(objects, ",") + `]}`,
		decorators:                  `{"kind":"DecoratorControllerList","items":[]}`,
		composites + "/a05/parents": `{"items":[{"group":"example.com","resource":"sites","namespace":"shop","name":"x","state":"Failing"}]}`,
	}
	title := regexp.MustCompile(`<h2><a [^>]*><bdi>([^<]*)</bdi>`)
	s, browser := start(t, documents, false)
	for path, want := range map[string][]string{
		"/":        {"broken", "pending", "a05", "paused", "a00", "a01", "a02", "a03", "a04", "a06"},
		"/?page=1": {"a17", "a18", "a19"},
	} {
		_, body, _ := get(t, browser, "http://"+s.hosts[0]+path)
		var got []string
		for _, found := range title.FindAllStringSubmatch(body, len(want)) {
			got = append(got, found[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s begins with %v, want %v", path, got, want)
		}
	}
}

// TestACardSaysWhatReadyDoesNot has a controller whose hook fails, and a kind that the cluster does not serve.
func TestACardSaysWhatReadyDoesNot(t *testing.T) {
	const object = `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"web"},"status":{"conditions":[` +
		`{"type":"Ready","status":"False","reason":"HookFailing","message":"No sync can succeed. The sync hook is dead."},` +
		`{"type":"HooksHealthy","status":"False","reason":"HookFailing","message":"The sync hook is dead."},` +
		`{"type":"Established","status":"False","reason":"ResourceNotFound","message":"No things."}]}}`
	documents := connectiontest.Documents{
		composites: `{"kind":"CompositeControllerList","items":[` + object + `]}`,
		decorators: `{"kind":"DecoratorControllerList","items":[]}`,
	}
	s, browser := start(t, documents, false)
	_, body, _ := get(t, browser, "http://"+s.hosts[0]+"/")
	for text, want := range map[string]int{
		"CompositeController web is not ready (HookFailing): No sync can succeed. The sync hook is dead.": 1,
		"The sync hook is dead.":                        1,
		"<b>ResourceNotFound</b> <bdi>No things.</bdi>": 1,
	} {
		if got := strings.Count(body, text); got != want {
			t.Errorf("%q is there %d times, want %d, in\n%s", text, got, want, body)
		}
	}
}

// TestUpdatesComeWhileAPageIsOpen shows that what changes in the cluster reaches a page, and that nothing is asked of the cluster without a page.
func TestUpdatesComeWhileAPageIsOpen(t *testing.T) {
	var mu sync.Mutex
	documents := cluster()
	requests := &recorder{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		documents.ServeHTTP(w, r)
	})}
	s, browser := start(t, requests, false)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.hosts[0]+link("/events", "page", "/controller?c=cc/web"), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	next := func(text string) update {
		for lines.Scan() {
			if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
				var u update
				if err := json.Unmarshal(data, &u); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(u.HTML, text) {
					return u
				}
			}
		}
		t.Fatalf("the updates end without %q: %v", text, lines.Err())
		return update{}
	}
	next("alert(")
	mu.Lock()
	documents[composites+"/web/parents"] = `{"items":[{"group":"example.com","resource":"sites","namespace":"shop","name":"new","state":"Synced"}]}`
	mu.Unlock()
	if u := next("shop/new"); u.ID != "parents" {
		t.Errorf("it is in %s", u.ID)
	}
	leave()
	// Every slot is free again when nobody reads for a page any more.
	for range mostStreams {
		select {
		case s.streams <- struct{}{}:
		case <-t.Context().Done():
			t.Fatal("a closed page is still read for")
		}
	}
	recorder := httptest.NewRecorder()
	again := httptest.NewRequestWithContext(t.Context(), http.MethodGet, link("/events", "page", "/"), http.NoBody)
	if s.follow(recorder, again); recorder.Code != http.StatusServiceUnavailable {
		t.Errorf("one more page than there are slots is answered with %d", recorder.Code)
	}
}

// TestAPageTakesFewRequests bounds what one reading of a page asks of the cluster, however many parents there are.
func TestAPageTakesFewRequests(t *testing.T) {
	for path, most := range map[string]int{"/": 4, "/controller?c=cc/web": 5, "/controller?c=cc/web&q=none": 5, "/hooks?c=cc/web&resource=sites.example.com&ns=shop&name=a": 2} {
		requests := &recorder{Handler: cluster()}
		s, browser := start(t, requests, false)
		before := requests.count("")
		get(t, browser, "http://"+s.hosts[0]+path)
		if n := requests.count("") - before; n > most {
			t.Errorf("%s takes %d requests, want %d at most: %v", path, n, most, requests.requests[before:])
		}
	}
}

func newJar(t *testing.T) http.CookieJar {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return jar
}

func TestTones(t *testing.T) {
	for state, want := range map[string]string{
		"Synced": good, "Synced,Failing": bad, "2/2": good, "1/2": waiting, "1/2: Synced": waiting, "being deleted": waiting, "": plain, "Bound": plain,
	} {
		if got := tone(state); got != want {
			t.Errorf("%q is %s, want %s", state, got, want)
		}
	}
}
