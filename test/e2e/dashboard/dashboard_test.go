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
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

func TestMain(m *testing.M) { os.Exit(terminal.Main(m)) }

// TestDashboard asks for the pages by HTTP. The stage is one for all.
func TestDashboard(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Resources: Resources()})
	s := New(t, e)
	b := open(t, s.Serve(t))
	t.Run("PagesSayWhatIs", func(t *testing.T) { pages(t, b) })
	t.Run("ChangesArrive", func(t *testing.T) { changes(t, s, b) })
	t.Run("PlanWithAnotherDefinition", func(t *testing.T) { plans(t, b) })
	t.Run("Forbidden", func(t *testing.T) { forbidden(t, s) })
	t.Run("ReadOnly", func(t *testing.T) { readOnly(t, s) })
	t.Run("Actions", func(t *testing.T) { actions(t, s, b) })
}

// browser asks for pages with the cookie.
type browser struct {
	*http.Client

	root string
}

// open exchanges the token of an address.
func open(t *testing.T, address string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{&http.Client{Jar: jar}, "http://" + at.Host}
	b.get(t, at.RequestURI())
	return b
}

func (b *browser) get(t *testing.T, path string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.root+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return b.do(t, request)
}

func (b *browser) post(t *testing.T, path string, form url.Values) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.root+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", b.root)
	return b.do(t, request)
}

func (b *browser) do(t *testing.T, request *http.Request) string {
	t.Helper()
	response, err := b.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s is answered with %d: %s", request.Method, request.URL, response.StatusCode, body)
	}
	return string(body)
}

// parentOf is the query of a parent in the shop.
func parentOf(controller, plural, name string) url.Values {
	return url.Values{"c": {"cc/" + controller}, "resource": {plural + ".example.com"}, "ns": {Namespace}, "name": {name}}
}

// pages have what is known of each controller and each parent, and nothing of Secrets.
func pages(t *testing.T, b *browser) {
	for path, wants := range map[string][]string{
		"/":                                     {"website", "invoice", "cache", "database", "backup", "queue", "mailer", ">Paused<", "the ledger is closed"},
		"/controller?c=cc/website":              {"Conditions", "sync", "shop/blog", "shop/docs", "back-office/intranet", "Paused 1", "Synced 3"},
		"/controller?c=cc/website&q=INTRA":      {"back-office/intranet"},
		"/controller?c=cc/website&state=Paused": {"shop/docs"},
		"/controller?c=dc/badge":                {"DecoratorController badge is ready.", "clusterthings.fixture.example.com", "estate", "shop/newsletter"},
		"/parent?" + url.Values{"c": {"dc/badge"}, "resource": {"clusterthings.fixture.example.com"}, "name": {"estate"}}.Encode(): {"ClusterThing", "Synced", "ParentCreated"},
		"/controller?c=cc/queue": {"DeletionsHeld", "kubectl -n default events --for compositecontroller/queue"},
		"/parent?" + parentOf("website", "websites", "blog").Encode():     {"blog-pages", "blog-login", "Deployment", "ParentCreated", "Create ConfigMap/blog-pages", "Synced"},
		"/parent?" + parentOf("invoice", "invoices", "first").Encode():    {"Failing", "the ledger is closed", "&lt;script&gt;"},
		"/parent?" + parentOf("cache", "caches", "sessions").Encode():     {"Changed back and forth", "data.memory", "capacity-planner", "sessions-limits"},
		"/parent?" + parentOf("database", "databases", "orders").Encode(): {"Rollout", "former", "latest", "Shard/orders-d", "NotReady", "replays its log"},
		"/parent?" + parentOf("backup", "backups", "nightly").Encode():    {"being deleted", "nightly-index"},
		"/parent?" + parentOf("queue", "queues", "mail").Encode():         {"Held", "mail-worker"},
		"/hooks?" + parentOf("website", "websites", "blog").Encode():      {"Request", "blog-pages", "(hidden)"},
		"/plan?" + parentOf("queue", "queues", "mail").Encode():           {"mail-worker", "DeletionsHeld"},
		"/plan?" + parentOf("website", "websites", "blog").Encode():       {"The next sync would write nothing.", "kind: CompositeController"},
	} {
		var body string
		cluster.Eventually(t, cluster.Limit, path, func(context.Context) (bool, string) {
			body = b.get(t, path)
			for _, want := range wants {
				if !strings.Contains(body, want) {
					return false, want + " is not in " + body
				}
			}
			return true, ""
		})
		for _, never := range []string{SecretValue, "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5", "<script>document", "\u202e"} {
			if strings.Contains(body, never) {
				t.Errorf("%s has %q", path, never)
			}
		}
	}
	if body := b.get(t, "/controller?c=cc/website&state=Paused"); strings.Contains(body, "shop/blog") {
		t.Error("the filter by state lets another parent through")
	}
	if body := b.post(t, "/hooks", parentOf("website", "websites", "blog")); !strings.Contains(body, "Response") || strings.Contains(body, SecretValue) {
		t.Errorf("the response of the hook: %s", body)
	}
}

// changes of the cluster are sent to a page that is open.
func changes(t *testing.T, s *Stage, b *browser) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	page := url.Values{"page": {"/parent?" + parentOf("cache", "caches", "sessions").Encode()}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.root+"/events?"+page.Encode(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := b.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReader(response.Body)
	await := func(id, text string) {
		t.Helper()
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatalf("the updates end before %s has %q: %v", id, text, err)
			}
			var update struct {
				ID   string `json:"id"`
				HTML string `json:"html"`
			}
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && json.Unmarshal(data, &update) == nil && update.ID == id && strings.Contains(update.HTML, text) {
				return
			}
		}
	}
	await("fights", "capacity-planner")
	before := regexp.MustCompile(`wrote it in (\d+) syncs`).FindString(b.get(t, page.Get("page")))
	began := time.Now()
	s.ChangeBack("32Mi")
	s.AwaitMemory("512Mi")
	if before == "wrote it in 3 syncs" {
		await("fights", "wrote it in 4 syncs")
	} else {
		await("timeline", "data.memory")
	}
	t.Logf("a change is on the page after %s", time.Since(began).Round(time.Millisecond))
}

// plans with another definition say what it would do, and write nothing.
func plans(t *testing.T, b *browser) {
	query := parentOf("website", "websites", "blog")
	form := regexp.MustCompile(`(?s)<textarea[^>]*>(.*?)</textarea>`)
	definition := form.FindStringSubmatch(b.get(t, "/plan?"+query.Encode()))[1]
	definition = strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&amp;", "&", "&#43;", "+").Replace(definition)
	edited := strings.Replace(definition, "resource: configmaps", "resource: services", 1)
	if edited == definition {
		t.Fatalf("the definition is %s", definition)
	}
	query.Set("definition", edited)
	if body := b.post(t, "/plan", query); !strings.Contains(body, "With the edited definition") || !strings.Contains(body, "ConfigMap") {
		t.Errorf("the plan is %s", body)
	}
	query.Set("definition", "kind: CompositeController")
	if body := b.post(t, "/plan", query); !strings.Contains(body, `class="problem"`) {
		t.Errorf("a definition that is none: %s", body)
	}
	query.Set("definition", strings.Replace(definition, "name: website", "name: other", 1))
	if body := b.post(t, "/plan", query); !strings.Contains(body, "not of cc/website") {
		t.Errorf("the definition of another controller: %s", body)
	}
}

// forbidden is what somebody may not read.
func forbidden(t *testing.T, s *Stage) {
	nobody := open(t, s.Serve(t, "--as", "nobody"))
	if body := nobody.get(t, "/"); !strings.Contains(body, "Forbidden") || strings.Contains(body, "website") {
		t.Errorf("somebody without rights sees %s", body)
	}
	s.Bind(t, "jane-inspects", "metacontroller-inspection", "", "jane")
	s.AwaitRole(t, "jane", "metacontroller-inspection", "")
	jane := open(t, s.Serve(t, "--as", "jane"))
	cluster.Eventually(t, cluster.Limit, "what jane sees", func(context.Context) (bool, string) {
		body := jane.get(t, "/controller?c=cc/website")
		return strings.Contains(body, "Forbidden") && strings.Contains(body, "parents are left out") && !strings.Contains(body, "shop/blog"), body
	})
	for _, path := range []string{"/parent?", "/hooks?", "/plan?"} {
		if body := jane.get(t, path+parentOf("website", "websites", "blog").Encode()); !strings.Contains(body, "Forbidden") || strings.Contains(body, "blog-pages") {
			t.Errorf("jane sees %s", body)
		}
	}
	form := parentOf("website", "websites", "blog")
	form.Set("action", "resync")
	if body := jane.post(t, "/act", form); !strings.Contains(body, "Forbidden") {
		t.Errorf("jane gets %s", body)
	}
}

// readOnly offers no actions, and does none.
func readOnly(t *testing.T, s *Stage) {
	port := strconv.Itoa(freeport.Find(t))
	b := open(t, s.Serve(t, "cc/website", "--read-only", "--port", port))
	if !strings.HasSuffix(b.root, ":"+port) {
		t.Errorf("it is at %s, want port %s", b.root, port)
	}
	if body := b.get(t, "/controller?c=cc/website"); strings.Contains(body, "Pause…") || !strings.Contains(body, "read-only") {
		t.Errorf("it offers actions: %s", body)
	}
	if body := b.post(t, "/act", url.Values{"action": {"pause"}, "c": {"cc/website"}}); !strings.Contains(body, "--read-only") {
		t.Errorf("it does actions: %s", body)
	}
	if got := s.Kubectl(t, "get", "compositecontroller/website", "-o", "jsonpath={.spec.paused}"); got == "true" {
		t.Error("the controller is paused")
	}
}

// actions are asked for on a page that says what they do, and do it.
func actions(t *testing.T, s *Stage, b *browser) {
	act := func(action string, query url.Values, before, after string) {
		t.Helper()
		query.Set("action", action)
		page := b.get(t, "/confirm?"+query.Encode())
		if !strings.Contains(page, before) || !strings.Contains(page, "kubectl metacontroller "+action) {
			t.Errorf("%s is asked for by %s", action, page)
		}
		for _, hidden := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(page, -1) {
			query.Set(hidden[1], hidden[2])
		}
		if page := b.post(t, "/act", query); !strings.Contains(page, after) {
			t.Errorf("%s is answered with %s", action, page)
		}
	}
	website := url.Values{"c": {"cc/website"}}
	act("pause", website, "No hook is called and nothing is written", "CompositeController website is paused.")
	s.controllers["website"].AwaitCondition(v1alpha1.ConditionPaused, "to be true", func(c metav1.Condition) bool { return c.Status == "True" })
	act("resume", website, "What changed meanwhile is synced first", "CompositeController website is resumed.")
	s.controllers["website"].AwaitCondition(v1alpha1.ConditionPaused, "to be false", func(c metav1.Condition) bool { return c.Status == "False" })
	act("resync", website, "Every parent that you may get is synced now", "4 parents are in the queue.")
	act("resync", parentOf("website", "websites", "blog"), "It is synced now", "1 parent is in the queue.")
	act("pause", parentOf("website", "websites", "blog"), "No controller calls a hook about it", "websites.example.com/shop/blog is paused.")
	s.Await(Websites, "blog", "to be paused", func(o *unstructured.Unstructured) bool {
		return o.GetAnnotations()[v1alpha1.AnnotationPaused] == "true"
	})
	act("resume", parentOf("website", "websites", "blog"), "It is synced at once", "websites.example.com/shop/blog is resumed.")
	s.Await(Websites, "blog", "to be resumed", func(o *unstructured.Unstructured) bool { return o.GetAnnotations()[v1alpha1.AnnotationPaused] == "" })
	act("rollback", parentOf("database", "databases", "orders"), "spec.version", "It is rolled back from revision")
	s.Await(Databases, "orders", "to be rolled back", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "spec", "version") == "17" })
}
