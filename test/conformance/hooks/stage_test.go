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

// Package hooks tests how hooks are called and what their responses to customize mean, with the server's binary on a real
// control plane and real HTTP and TLS servers as hooks. Each test names the section of the contract that it is about. What a
// composite's hooks want of its children is tested in package composite.
package hooks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	limit = cluster.Limit
	// hookTimeout is more than any response takes there. A call that is cut short is an event that no test expects.
	hookTimeout = time.Minute
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// shared is the server, behind a proxy, and the clients of all tests.
type shared struct {
	*fixture.Environment

	proxy *proxy
}

func setUp(t *testing.T) *shared {
	t.Helper()
	p := newProxy(t, cluster.Shared(t))
	return &shared{proxy: p, Environment: fixture.SetUp(t, fixture.Options{Limit: limit, Server: server.Options{Kubeconfig: p.kubeconfig}})}
}

// A stage is one test of a controller of either kind.
type stage struct {
	*fixture.Test

	kind fixture.Kind
	// running is the controller from run on.
	running *controllers.Controller
}

// newStage makes the stage of a test, without controller.
func newStage(t *testing.T, s *shared, kind fixture.Kind, options ...hooktest.Option) *stage {
	t.Helper()
	return &stage{Test: s.NewTest(t, options...), kind: kind}
}

// definition is what both kinds of controllers have in common. Parents are Things, unless resource says something else.
type definition struct {
	resource                  schema.GroupVersionResource
	sync, finalize, customize *v1alpha1.Hook
	endpoints                 []v1alpha1.EndpointConfig
	resyncPeriod              *int32
	ignoreStatus              *bool
	// children declares ConfigMaps and Deployments as children or attachments.
	children bool
}

// run creates the controller and waits until it runs.
func (s *stage) run(d definition) {
	s.T.Helper()
	full := fixture.Definition{
		Kind: s.kind, Sync: d.sync, Finalize: d.finalize, Customize: d.customize,
		Endpoints: d.endpoints, ResyncPeriod: d.resyncPeriod, IgnoreStatus: d.ignoreStatus,
	}
	if !d.resource.Empty() {
		full.Parents = []schema.GroupVersionResource{d.resource}
	}
	if d.children {
		full.Children = []fixture.Child{{Resource: fixture.ConfigMaps}, {Resource: fixture.Deployments}}
	}
	s.running = s.Run(full)
}

// at declares a hook at a path of the stage's server.
func (s *stage) at(path string, version v1alpha1.HookVersion) *v1alpha1.Hook {
	hook := s.At(path)
	hook.Version, hook.Webhook.Timeout = &version, &metav1.Duration{Duration: hookTimeout}
	return hook
}

// question is the body of a request, of any hook.
type question map[string]any

// parent is the parent or target that a request is about.
func (q question) parent() *unstructured.Unstructured {
	for _, key := range []string{"parent", "object"} {
		if o, ok := q[key].(map[string]any); ok {
			return &unstructured.Unstructured{Object: o}
		}
	}
	return &unstructured.Unstructured{}
}

// answering returns a hook that responses with the JSON that f returns.
func answering(f func(question) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q question
		if body, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(body, &q) != nil {
			http.Error(w, "this is no request of a hook", http.StatusBadRequest)
			return
		}
		hooktest.JSON(f(q)).ServeHTTP(w, r)
	})
}

// reporting returns a hook of either kind that sets a status.
func reporting(f func(question) map[string]any) http.Handler {
	return answering(func(q question) any { return map[string]any{"status": f(q)} })
}

// fine returns a hook of either kind that sets the status done to "yes".
func fine() http.Handler {
	return reporting(func(question) map[string]any { return map[string]any{"done": "yes"} })
}

// calls returns the requests at a path about one parent, or about all when name is empty.
func (s *stage) calls(path, name string) []question {
	var found []question
	for _, r := range s.Requests(path) {
		var q question
		if err := json.Unmarshal(r.Body, &q); err == nil && (name == "" || q.parent().GetName() == name) {
			found = append(found, q)
		}
	}
	return found
}

// awaitCalls waits until the hook at a path was called so often about one parent, or about all when name is empty.
func (s *stage) awaitCalls(path, name string, want int) []question {
	s.T.Helper()
	var found []question
	cluster.Eventually(s.T, limit, fmt.Sprintf("%d calls of %s", want, path), func(context.Context) (bool, string) {
		found = s.calls(path, name)
		return len(found) >= want, fmt.Sprintf("%d calls", len(found))
	})
	return found
}

// settled waits until the controller has dealt with all that was written before, and returns how often the hook at a path was
// called.
func (s *stage) settled(path string) int {
	s.T.Helper()
	s.Settle()
	return len(s.Requests(path))
}

// create creates an object, with some content and the labels given.
func (s *stage) create(r schema.GroupVersionResource, namespace, name string, content map[string]any, labels map[string]string) {
	s.T.Helper()
	s.CreateIn(namespace, r, name, content, labels)
}

// awaitStatus waits until a field of a Thing's status is as wanted.
func (s *stage) awaitStatus(name, field, want string) {
	s.T.Helper()
	s.awaitStatusOf(fixture.Things, s.Namespace, name, field, want)
}

func (s *stage) awaitStatusOf(r schema.GroupVersionResource, namespace, name, field, want string) {
	s.T.Helper()
	s.In(namespace).Await(r, name, fmt.Sprintf("to have the status %s %q", field, want), func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		got, _, err := unstructured.NestedString(o.Object, "status", field)
		return err == nil && got == want
	})
}

// syncError waits for the event of a failed sync of a parent, and returns it. Its text is "Sync error: ", the prefix of the
// controller's kind, and text.
func (s *stage) syncError(name, text string) *corev1.Event {
	s.T.Helper()
	return s.AwaitEventAs(name, fmt.Sprintf("that says %q", text), func(e *corev1.Event) bool {
		return e.Type == corev1.EventTypeWarning && e.Reason == "SyncError" && strings.HasPrefix(e.Message, "Sync error: ") &&
			strings.HasSuffix(e.Message, text)
	})
}

// calm fails the test if there is a Warning event about a parent.
func (s *stage) calm(name string) {
	s.T.Helper()
	for _, e := range s.Events(name) {
		if e.Type == corev1.EventTypeWarning {
			s.T.Errorf("there is an event %s: %s", e.Reason, e.Message)
		}
	}
}

// patience is how far away the next retry is when tests mend a cause: long enough to tell a retry at once from one that is due.
const patience = 16 * time.Second

// mends mends what makes the hook at a path fail as soon as its next retry is far away, and checks that the hook is called before it is due.
func (s *stage) mends(path string, mend func()) {
	s.T.Helper()
	due := s.awaitDistantRetry()
	before := len(s.Requests(path))
	mend()
	if late := time.Since(due); late > 0 {
		s.T.Fatalf("the cause was mended only %v after the retry was due", late)
	}
	s.awaitCalls(path, "", before+1)
	if called := s.Requests(path)[before].Time; !called.Before(due) {
		s.T.Errorf("the hook was called %v after its retry was due: what failed must be retried as soon as the cause is mended", called.Sub(due))
	}
}

// awaitDistantRetry waits until the back-off of the stage's only parent is long, and returns when it ends.
func (s *stage) awaitDistantRetry() (due time.Time) {
	s.T.Helper()
	if !s.Server.ServesAPI() {
		s.T.Skip("a subresource alone says when a retry is due")
	}
	cluster.Eventually(s.T, limit, "a retry that is far away", func(ctx context.Context) (bool, string) {
		list, err := s.parents(ctx)
		if err != nil || len(list.Items) != 1 {
			return false, fmt.Sprint(list, err)
		}
		p := list.Items[0]
		if p.Retries == 0 || p.NextSyncTime == nil {
			return false, fmt.Sprintf("%+v", p)
		}
		due = p.NextSyncTime.Time
		return time.Until(due) > patience, fmt.Sprintf("the retry after %d failures is due in %v", p.Retries, time.Until(due))
	})
	return due
}

func (s *stage) parents(ctx context.Context) (*v1alpha1.ControllerParentList, error) {
	client, of := s.Versioned.MetacontrollerV1alpha1(), v1alpha1.ControllerParentOptions{Namespace: s.Namespace}
	if s.kind == fixture.Decorator {
		return client.DecoratorControllers().GetParents(ctx, s.running.Name, of)
	}
	return client.CompositeControllers().GetParents(ctx, s.running.Name, of)
}

// proxy stands between the server and the kube-apiserver and remembers what the server reads.
type proxy struct {
	kubeconfig string

	mu   sync.Mutex
	read map[string][]url.Values
}

// newProxy starts a proxy that ends with the test.
func newProxy(t *testing.T, c *cluster.Cluster) *proxy {
	t.Helper()
	config := c.Config(t)
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), read: map[string][]url.Values{}}
	forward := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			p.mu.Lock()
			p.read[r.URL.Path] = append(p.read[r.URL.Path], r.URL.Query())
			p.mu.Unlock()
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
	})
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"proxy": {Server: listener.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy"}},
		CurrentContext: "proxy",
	}, p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// selectors returns the label selectors with which a path was listed or watched, each once.
func (p *proxy) selectors(path string) map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[string]bool{}
	for _, query := range p.read[path] {
		found[query.Get("labelSelector")] = true
	}
	return found
}

// TestHooks runs the tests of this package on one server. Each is named after its section of the contract. What is the same
// code for both kinds of controllers is tested with one of them.
func TestHooks(t *testing.T) {
	s := setUp(t)
	type test func(t *testing.T, s *shared, kind fixture.Kind)
	run := func(name string, test test, kinds ...fixture.Kind) {
		for _, kind := range kinds {
			t.Run(strings.Replace(name, "KIND", string(kind), 1), func(t *testing.T) {
				t.Parallel()
				test(t, s, kind)
			})
		}
	}
	const network, counted = "it is about what goes over the network", "it counts the calls that come over the network"
	for _, row := range []struct {
		name     string
		webhooks test
		// inline does the same with inline hooks; without it, only says why there are none.
		inline test
		only   string
	}{
		{"02_ASecretThatAppearsLater", testMissingSecret, nil, network},
		{"02_ARotatedToken", testRotation, nil, network},
		{"02_Tags", testTags, nil, network},
		{"05_Resync", testResync, nil, counted},
		{"05_IgnoreStatusChanges", testIgnoreStatus, nil, counted},
		{"05_ParentsAreSelectedByTheAPIServer", testServerSideSelection, testInlineServerSideSelection, ""},
		{"09_Requests", testRequests, testInline, ""},
		{"16_AKindThatIsServedLater", testLatecomer, testInlineLatecomer, ""},
		{"16_OnlyParentsThatSelectAreCalled", testSelection, nil, counted},
		{"16_NamespaceSelectorFollowsLabels", testNamespaceSelector, testInlineNamespaceSelector, ""},
		{"16_RefusedRulesAreEvents", testRefusedRules, testInlineRefusedRules, ""},
		{"16_ScopeDependsOnTheVersion", testScope, nil, "inline hooks have no versions"},
		{"16_ResponsesAreKeptUntilTheParentChanges", testResponsesAreKept, nil, counted},
		{"18_RetryAfter", testRetryAfter, nil, network},
	} {
		run(row.name+"/KIND", row.webhooks, fixture.Composite, fixture.Decorator)
		if row.inline != nil {
			run(row.name+"/KIND/Inline", row.inline, fixture.Composite, fixture.Decorator)
		}
		if (row.inline == nil) != (row.only != "") {
			t.Errorf("%s runs with inline hooks, or there is a reason: %q", row.name, row.only)
		}
	}
	for name, test := range map[string]test{
		"02_ClientCertificate": testClientCertificate, "02_StrictAndLoose": testModes, "09_InlineHooksWhoseKindChanges": testChangedKind,
		"18_BackoffWithoutRetryAfter": testBackoff, "18_MisbehavingHooks": testMisbehaving,
	} {
		run(name+"/KIND", test, fixture.Decorator)
	}
}

// secret creates a Secret of the stage's namespace, or changes its data.
func (s *stage) secret(name string, data map[string]string) {
	s.T.Helper()
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		o.Data[key] = []byte(value)
	}
	secrets := s.Kube.CoreV1().Secrets(s.Namespace)
	_, err := secrets.Update(s.T.Context(), o, metav1.UpdateOptions{})
	if err != nil {
		_, err = secrets.Create(s.T.Context(), o, metav1.CreateOptions{})
	}
	if err != nil {
		s.T.Fatalf("writing secret %s: %v", name, err)
	}
}

func (s *stage) reference(name string) v1alpha1.SecretReference {
	return v1alpha1.SecretReference{Namespace: s.Namespace, Name: name}
}

// authorized declares the sync hook with the token of the Secret login.
func (s *stage) authorized() *v1alpha1.Hook {
	hook := s.at("/sync", v1)
	hook.Webhook.Authorization = &v1alpha1.WebhookAuthorization{
		SecretRef: v1alpha1.SecretKeyReference{Namespace: s.Namespace, Name: "login", Key: "token"},
	}
	return hook
}

// bundled trusts the authority of the stage's hook.
func bundled(st *stage) v1alpha1.WebhookSecurity {
	return v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{Inline: new(st.Hook.CABundle())}}
}

// onlyOneWarning fails the test if the Warning events about a parent are not all the same one.
func (s *stage) onlyOneWarning(name string) {
	s.T.Helper()
	var seen []string
	for _, e := range s.Events(name) {
		if e.Type == corev1.EventTypeWarning {
			seen = append(seen, e.Message)
		}
	}
	if len(seen) != 1 {
		s.T.Errorf("there are %d Warning events, want one that is counted:\n%s", len(seen), strings.Join(seen, "\n"))
	}
}

// testClientCertificate renews the certificate that the hook demands.
func testClientCertificate(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind, hooktest.WithClientCertificates())
	st.Handle("/sync", reporting(func(q question) map[string]any {
		round, _ := q.parent().Object["spec"].(map[string]any)["round"].(string)
		return map[string]any{"round": round}
	}))
	certificate, key := st.Hook.ClientCertificate()
	st.secret("client", map[string]string{"cert": string(certificate), "key": string(key)})
	security := bundled(st)
	security.ClientTLS = &v1alpha1.ClientTLS{SecretRef: st.reference("client"), CertKey: new("cert"), PrivateKeyKey: new("key")}
	// The endpoint's settings count where the webhook has none (docs/reference/contract.md#s2.4).
	st.run(definition{sync: st.at("/sync", v1), endpoints: []v1alpha1.EndpointConfig{
		{Host: "127.0.0.1", WebhookSecurity: v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{Inline: new("no match: the port is missing")}}},
		{Host: st.Hook.Host(), WebhookSecurity: security},
	}})
	st.Parent("p", map[string]any{"round": "1"})
	st.awaitStatus("p", "round", "1")
	st.secret("client", map[string]string{"cert": "broken", "key": string(key)})
	// Secrets and parents are watched apart: the parent may change before the server knows of the Secret, and is synced then.
	round := 1
	fault := "clientTLS of the hook, Secret " + st.Namespace +
		"/client: certificate and key cannot be used: tls: failed to find any PEM data in certificate input"
	cluster.Eventually(t, limit, "a sync without client certificate", func(context.Context) (bool, string) {
		round++
		st.Patch(fixture.Things, "p", fmt.Sprintf(`{"spec":{"round":"%d"}}`, round))
		return slices.ContainsFunc(st.Events("p"), func(e corev1.Event) bool { return strings.HasSuffix(e.Message, fault) }),
			fmt.Sprintf("round %d", round)
	})
	st.syncError("p", fault)
	st.secret("client", map[string]string{"cert": string(certificate), "key": string(key)})
	st.awaitStatus("p", "round", strconv.Itoa(round))
}

// testMissingSecret is about docs/reference/compatibility.md#d2.3, docs/reference/compatibility.md#d1.5: a Secret that is missing at the start keeps nothing from
// running, and is used as soon as it is there.
func testMissingSecret(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	st.Handle("/sync", fine())
	st.run(definition{sync: st.authorized()})
	st.Parent("p", nil)
	text := fmt.Sprintf("authorization of the hook, Secret %[1]s/login: secrets \"%[1]s/login\" not found", st.Namespace)
	st.syncError("p", text)
	st.mends("/sync", func() { st.secret("login", map[string]string{"token": "one"}) })
	st.awaitStatus("p", "done", "yes")
	st.onlyOneWarning("p")
}

// testRotation lets a hook refuse the old token: the new one is used at once.
func testRotation(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	st.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer two" {
			hooktest.Status(http.StatusUnauthorized, "who are you?").ServeHTTP(w, r)
			return
		}
		fine().ServeHTTP(w, r)
	}))
	st.secret("login", map[string]string{"token": "one"})
	st.run(definition{
		sync: st.authorized(), resyncPeriod: ptr.To[int32](3600),
	})
	st.Parent("p", nil)
	st.syncError("p", "unsupported status code: 401 body: who are you?")
	st.mends("/sync", func() { st.secret("login", map[string]string{"token": "two"}) })
	st.awaitStatus("p", "done", "yes")
}
