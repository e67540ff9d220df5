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

package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
	"github.com/metacontroller/metacontroller-apiserver/pkg/features"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
)

const (
	maxBody  = 100 << 10
	patience = 20 * time.Second
)

// shared is the server of all tests; each uses names of its own. It has no cluster behind it: everybody may do everything,
// and nothing but tests is asked for admission.
var shared *rest.Config

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(
		served{m},
		// The check of the log, once it was made, flushes it as long as the process is there.
		goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/util/wait.Forever"),
		// A read that has waited for the cache leaves a timer behind, which ends after three seconds.
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
	)
}

// served are tests that have the server, which has ended before goroutines are looked for.
type served struct{ m *testing.M }

// Run implements goleak.TestingM.
func (s served) Run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // There is no test yet.
	defer stop()
	code, err := withServer(ctx, s.m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// withServer runs tests while the server runs.
func withServer(ctx context.Context, run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "apiserver")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	etcd, err := embeddedetcd.Start(ctx, embeddedetcd.Options{Dir: dir, UnsafeNoFsync: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	config, err := newConfig(ctx, etcd.Endpoint())
	if err != nil {
		return 0, err
	}
	shared = rest.CopyConfig(config.Generic.LoopbackClientConfig)
	shared.QPS = -1
	server, err := config.Complete().New()
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Generic.PrepareRun().RunWithContext(ctx) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	if err := awaitReady(ctx, shared); err != nil {
		return 0, err
	}
	return run(), nil
}

func newConfig(ctx context.Context, endpoint string) (*apiserver.Config, error) {
	registry, err := features.NewRegistry()
	if err != nil {
		return nil, err
	}
	config := apiserver.NewConfig()
	config.ProcessMetrics = true
	generic := config.Generic
	run := genericoptions.NewServerRunOptionsForComponent(features.Component, registry)
	run.MaxRequestBodyBytes = maxBody
	run.ShutdownSendRetryAfter = true
	run.ShutdownWatchTerminationGracePeriod = time.Second
	if err := registry.Set(); err != nil {
		return nil, err
	}
	if err := run.ApplyTo(&generic.Config); err != nil {
		return nil, err
	}
	generic.FeatureGate = registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	storage := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/test", apiserver.Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)))
	storage.StorageConfig.Transport.ServerList = []string{endpoint}
	if err := storage.ApplyTo(&generic.Config); err != nil {
		return nil, err
	}
	serving := genericoptions.NewSecureServingOptions().WithLoopback()
	serving.ServerCert.CertDirectory = ""
	if serving.Listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, err
	}
	if err := serving.ApplyToConfig(&generic.Config); err != nil {
		return nil, err
	}
	generic.Authentication.Authenticator = anonymous.NewAuthenticator(nil)
	generic.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	generic.AdmissionControl = &deletions
	return config, nil
}

func awaitReady(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", http.NoBody)
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // It does not listen yet.
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
}

// client returns the generated client.
func client(t *testing.T) *versioned.Clientset {
	t.Helper()
	c, err := versioned.NewForConfig(shared)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	groupPath  = "/apis/metacontroller.k8s.io/v1alpha1"
	composites = groupPath + "/compositecontrollers"
	decorators = groupPath + "/decoratorcontrollers"
)

type answer struct {
	status   int
	media    string
	warnings []string
	body     string
}

// message is that of a metav1.Status.
func (a answer) message(t *testing.T) string {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(a.body), &status); err != nil {
		t.Fatalf("the answer is no status: %v\n%s", err, a.body)
	}
	return status.Message
}

// ask sends one request, with headers as pairs of name and value.
func ask(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(shared)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, shared.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(headers, "Content-Type") {
		request.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := httpClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header.Get("Content-Type"), response.Header.Values("Warning"), string(content)}
}

// must fails the test unless the answer has the status.
func (a answer) must(t *testing.T, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("got status %d, want %d:\n%s", a.status, status, a.body)
	}
	return a
}

// compositeJSON is a CompositeController with more fields in its spec.
func compositeJSON(name, fields string) string {
	return `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"` + name + `"},` +
		`"spec":{"parentResource":{"apiVersion":"example.com/v1","resource":"foos"}` + fields + `}}`
}

// await waits until /readyz has a code and lines.
func await(t *testing.T, config *rest.Config, code int, lines ...string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz?verbose", http.NoBody)
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // It does not listen yet.
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return false, err
		}
		last = response.Status + "\n" + string(body)
		for _, line := range lines {
			if !strings.Contains(last, line) {
				return false, response.Body.Close()
			}
		}
		return response.StatusCode == code, response.Body.Close()
	})
	if err != nil {
		t.Fatalf("/readyz is not %d with %q, but %s", code, lines, last)
	}
}

// An oldCluster is as far as a probe sees it. It answers like one that serves the resources given and forbids some.
type oldCluster struct {
	served    map[string][]string
	forbidden map[string]string
	broken    bool
}

func (c oldCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch resources, ok := c.served[r.URL.Path]; {
	case c.broken:
		w.WriteHeader(http.StatusServiceUnavailable)
		answer = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonServiceUnavailable, Code: http.StatusServiceUnavailable}
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		var review authorizationv1.SelfSubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = c.forbidden[asked.Resource] != asked.Verb
		w.WriteHeader(http.StatusCreated)
		answer = review
	case ok:
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
		for _, name := range resources {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		answer = list
	default:
		w.WriteHeader(http.StatusNotFound)
		answer = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	}
	// A client that went away is not interested.
	_ = json.NewEncoder(w).Encode(answer)
}

func TestProbe(t *testing.T) {
	const (
		core      = "/api/v1"
		admission = "/apis/admissionregistration.k8s.io/v1"
		flow      = "/apis/flowcontrol.apiserver.k8s.io/v1"
	)
	webhooks := []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
	policies := []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
	all := append(append([]string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}, policies...), webhooks...)
	flows := []string{"flowschemas", "prioritylevelconfigurations"}
	for name, test := range map[string]struct {
		cluster oldCluster
		want    map[string]string
	}{
		"everything is there": {
			oldCluster{served: map[string][]string{core: {"namespaces"}, admission: all, flow: flows}}, map[string]string{},
		},
		"before mutating policies": {
			oldCluster{served: map[string][]string{core: {"namespaces"}, admission: append(policies, webhooks...), flow: flows}},
			map[string]string{
				"MutatingAdmissionPolicy": "the cluster does not serve mutatingadmissionpolicies in admissionregistration.k8s.io/v1; " +
					"the cluster does not serve mutatingadmissionpolicybindings in admissionregistration.k8s.io/v1",
			},
		},
		"before priority and fairness": {
			oldCluster{served: map[string][]string{core: {"namespaces"}, admission: all}},
			map[string]string{
				"APIPriorityAndFairness": "the cluster does not serve flowschemas in flowcontrol.apiserver.k8s.io/v1; " +
					"the cluster does not serve prioritylevelconfigurations in flowcontrol.apiserver.k8s.io/v1",
			},
		},
		"some rights are missing": {
			oldCluster{
				served:    map[string][]string{core: {"namespaces"}, admission: all, flow: flows},
				forbidden: map[string]string{"flowschemas": "list", "validatingwebhookconfigurations": "watch"},
			},
			map[string]string{
				"APIPriorityAndFairness":     "this server may not list flowschemas.flowcontrol.apiserver.k8s.io",
				"ValidatingAdmissionWebhook": "this server may not watch validatingwebhookconfigurations.admissionregistration.k8s.io",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := probe(t, test.cluster)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("unusable parts differ (-want +got):\n%s", diff)
			}
		})
	}
}

// A server that does not know must not guess that nothing is there, and serve without admission.
func TestProbeOfAClusterThatDoesNotAnswer(t *testing.T) {
	if got, err := probe(t, oldCluster{broken: true}); err == nil || !strings.Contains(err.Error(), "discovering v1 at the cluster") {
		t.Errorf("got %v, %v", got, err)
	}
}

func probe(t *testing.T, cluster oldCluster) (map[string]string, error) {
	t.Helper()
	s := httptest.NewServer(cluster)
	t.Cleanup(s.Close)
	c, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return apiserver.Probe(t.Context(), c, apiserver.Parts())
}

// undecided has an authorizer that is down for some reviews of a right.
type undecided struct {
	oldCluster

	reviews  int
	resource string
	// failures are how many reviews fail, and status how; zero: the review has an evaluation error.
	failures, status int
}

func (u *undecided) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var review authorizationv1.SelfSubjectAccessReview
		if err := json.Unmarshal(body, &review); err == nil && review.Spec.ResourceAttributes.Resource == u.resource {
			if u.reviews++; u.reviews <= u.failures {
				w.Header().Set("Content-Type", "application/json")
				if u.status != 0 {
					w.WriteHeader(u.status)
					return
				}
				review.Status.EvaluationError = "webhook: connection refused"
				w.WriteHeader(http.StatusCreated)
				_ = json.NewEncoder(w).Encode(review)
				return
			}
		}
	}
	u.oldCluster.ServeHTTP(w, r)
}

// RoundTrip implements http.RoundTripper, so that nothing waits for a network.
func (u *undecided) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	u.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

// What is switched off stays so for the life of the process: a cluster that cannot decide has not said no.
func TestARightThatTheClusterCannotDecideIsAskedForAgain(t *testing.T) {
	const resource = "validatingwebhookconfigurations"
	cluster := oldCluster{served: map[string][]string{
		"/api/v1": {"namespaces"}, "/apis/admissionregistration.k8s.io/v1": {
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
			"mutatingwebhookconfigurations", resource,
		}, "/apis/flowcontrol.apiserver.k8s.io/v1": {"flowschemas", "prioritylevelconfigurations"},
	}}
	denied := cluster
	denied.forbidden = map[string]string{resource: "list"}
	off := map[string]string{"ValidatingAdmissionWebhook": "this server may not list validatingwebhookconfigurations.admissionregistration.k8s.io"}
	for name, test := range map[string]struct {
		cluster undecided
		want    map[string]string
		took    time.Duration
	}{
		"the authorizer is back, and allows": {undecided{oldCluster: cluster, failures: 3}, map[string]string{}, 3 * time.Second},
		"the authorizer is back, and denies": {undecided{oldCluster: denied, failures: 3}, off, 3 * time.Second},
		"a request fails":                    {undecided{oldCluster: denied, failures: 2, status: http.StatusInternalServerError}, off, 2 * time.Second},
		"the authorizer stays away":          {undecided{oldCluster: denied, failures: 1000}, map[string]string{}, 20 * time.Second},
		"nobody may ask":                     {undecided{oldCluster: denied, failures: 1000, status: http.StatusForbidden}, map[string]string{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.cluster.resource = resource
				c, err := kubernetes.NewForConfig(&rest.Config{
					Host: "http://cluster", QPS: -1, Transport: &test.cluster, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
				})
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				got, err := apiserver.Probe(t.Context(), c, apiserver.Parts())
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("unusable parts differ (-want +got):\n%s", diff)
				}
				if took := time.Since(begun); took != test.took {
					t.Errorf("it took %s, want %s", took, test.took)
				}
			})
		})
	}
}

func TestDiscovery(t *testing.T) {
	c, err := discovery.NewDiscoveryClientForConfig(shared)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range list.APIResources {
		got[r.Name] = fmt.Sprintf("%s %s %t %v %v %v", r.Kind, r.SingularName, r.Namespaced, r.ShortNames, r.Categories, r.Verbs)
	}
	const verbs = "[create delete deletecollection get list patch update watch]"
	want := map[string]string{
		"compositecontrollers":          "CompositeController compositecontroller false [cc cctl] [metacontroller] " + verbs,
		"compositecontrollers/parents":  "ControllerParentList  false [] [] [get]",
		"compositecontrollers/plan":     "ControllerPlan  false [] [] [create]",
		"compositecontrollers/request":  "HookRequestList  false [] [] [get]",
		"compositecontrollers/resync":   "ControllerResync  false [] [] [create]",
		"compositecontrollers/rollback": "ControllerRollback  false [] [] [create]",
		"compositecontrollers/syncs":    "ControllerSyncList  false [] [] [get]",
		"compositecontrollers/status":   "CompositeController  false [] [] [get patch update]",
		"decoratorcontrollers":          "DecoratorController decoratorcontroller false [dc dec decorators] [metacontroller] " + verbs,
		"decoratorcontrollers/parents":  "ControllerParentList  false [] [] [get]",
		"decoratorcontrollers/plan":     "ControllerPlan  false [] [] [create]",
		"decoratorcontrollers/request":  "HookRequestList  false [] [] [get]",
		"decoratorcontrollers/resync":   "ControllerResync  false [] [] [create]",
		"decoratorcontrollers/syncs":    "ControllerSyncList  false [] [] [get]",
		"decoratorcontrollers/status":   "DecoratorController  false [] [] [get patch update]",
		"controllerrevisions":           "ControllerRevision controllerrevision true [] [metacontroller] " + verbs,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources differ (-want +got):\n%s", diff)
	}
	// Clients of the aggregation layer would call the group stale without this.
	aggregated := ask(t, http.MethodGet, "/apis", "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if !strings.Contains(aggregated.media, "APIGroupDiscoveryList") {
		t.Errorf("aggregated discovery is not served, but %s", aggregated.media)
	}
}

// TestTables looks at how tables are served. What is in them is tested in package registry.
func TestTables(t *testing.T) {
	revisions := groupPath + "/namespaces/table/controllerrevisions"
	for path, object := range map[string]string{
		composites: compositeJSON("table", ""),
		decorators: `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"DecoratorController","metadata":{"name":"table"},"spec":{"resources":[]}}`,
		revisions:  `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"table"},"parentPatch":{},"children":[]}`,
	} {
		ask(t, http.MethodPost, path, object).must(t, http.StatusCreated)
	}
	for path, column := range map[string]string{
		composites + "?fieldSelector=metadata.name%3Dtable": "Parent", composites + "/table": "Parent", composites + "/table/status": "Parent",
		decorators + "?fieldSelector=metadata.name%3Dtable": "Resources", revisions: "Latest",
	} {
		t.Run(path, func(t *testing.T) {
			a := ask(t, http.MethodGet, path, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").must(t, http.StatusOK)
			var table metav1.Table
			if err := json.Unmarshal([]byte(a.body), &table); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == column }) ||
				len(table.Rows) != 1 || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) || table.Rows[0].Cells[0] != "table" {
				t.Errorf("the table has no row of the object with the column %s:\n%s", column, a.body)
			}
			if table.ResourceVersion == "" {
				t.Error("the table has no resourceVersion, so kubectl get -w cannot go on from it")
			}
		})
	}
}

func TestWatch(t *testing.T) {
	ctx := t.Context()
	c := client(t).MetacontrollerV1alpha1().CompositeControllers()
	w, err := c.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=watched"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	o := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "watched"}}
	o.Spec.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "v1", Resource: "configmaps"}
	if o, err = c.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o.Labels = map[string]string{"a": "b"}
	if _, err := c.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, "watched", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(got) < 3 {
		event, ok := <-w.ResultChan()
		if !ok {
			t.Fatal("the watch ended")
		}
		o, ok := event.Object.(*v1alpha1.CompositeController)
		if !ok {
			t.Fatalf("the watch sent %T", event.Object)
		}
		got = append(got, fmt.Sprint(event.Type, " ", o.Labels["a"]))
	}
	if diff := cmp.Diff([]string{"ADDED ", "MODIFIED b", "DELETED b"}, got); diff != "" {
		t.Errorf("events differ (-want +got):\n%s", diff)
	}
}

func TestHealth(t *testing.T) {
	for path, checks := range map[string][]string{
		"/livez":  {"ping", "etcd"},
		"/readyz": {"ping", "etcd", "etcd-readiness", "poststarthook/storage-readiness", "shutdown", "watch-caches"},
	} {
		a := ask(t, http.MethodGet, path+"?verbose", "").must(t, http.StatusOK)
		for _, check := range checks {
			if !strings.Contains(a.body, "[+]"+check+" ok") {
				t.Errorf("%s does not check %s:\n%s", path, check, a.body)
			}
		}
	}
}

func TestMetricsHaveThoseOfTheProcessAndOfEtcd(t *testing.T) {
	body := ask(t, http.MethodGet, "/metrics", "").must(t, http.StatusOK).body
	for _, metric := range []string{"apiserver_request_total", "etcd_mvcc_db_total_size_in_bytes", "go_goroutines", "process_open_fds"} {
		if strings.Count(body, "\n# TYPE "+metric+" ") != 1 {
			t.Errorf("%s is not there exactly once", metric)
		}
	}
}

func TestEveryFieldIsDocumented(t *testing.T) {
	body := ask(t, http.MethodGet, "/openapi/v3/apis/metacontroller.k8s.io/v1alpha1", "").must(t, http.StatusOK).body
	var document spec3.OpenAPI
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for name, schema := range document.Components.Schemas {
		if !strings.HasPrefix(name, "io.k8s.metacontroller.") {
			continue
		}
		for field, property := range schema.Properties {
			checked++
			if len(property.Description) < 20 {
				t.Errorf("%s: %s is described by %q", name, field, property.Description)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d fields were found", checked)
	}
	ask(t, http.MethodGet, "/openapi/v2", "").must(t, http.StatusOK)
}

// TestAServerIsNotReadyWhileWhatIsStoredCannotBeRead has something under the key of an object that is none.
// The process asks the etcd of the server that was made last for its size: the test of metrics stands before this one.
func TestAServerIsNotReadyWhileWhatIsStoredCannotBeRead(t *testing.T) {
	etcd, err := embeddedetcd.Start(t.Context(), embeddedetcd.Options{Dir: t.TempDir(), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	})
	store, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	const key = "/test/metacontroller.k8s.io/compositecontrollers/garbage"
	if _, err := store.Put(t.Context(), key, "garbage"); err != nil {
		t.Fatal(err)
	}
	config := serveFrom(t, etcd.Endpoint())

	await(t, config, http.StatusInternalServerError, "[+]poststarthook/storage-readiness ok", "[-]watch-caches failed")
	if _, err := store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	await(t, config, http.StatusOK, "[+]watch-caches ok")
}

// serveFrom runs a server until the end of the test that gives up the wait for its watch caches at once.
func serveFrom(t *testing.T, endpoint string) *rest.Config {
	t.Helper()
	config, err := newConfig(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	config.ProcessMetrics = false
	config.Generic.StorageInitializationTimeout = time.Millisecond
	loopback := config.Generic.LoopbackClientConfig
	server, err := config.Complete().New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Generic.PrepareRun().RunWithContext(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return loopback
}
