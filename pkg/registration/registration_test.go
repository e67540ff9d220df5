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

package registration

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// pods are servers that register themselves, each with an authority of its own.
type pods struct {
	*testing.T

	cluster *objects
	clock   *clocktesting.FakeClock
	config  *rest.Config
	// keepers and authorities are by the letters of the servers.
	keepers     map[rune]*keeper
	authorities map[rune]string
}

func newPods(t *testing.T) *pods {
	cluster := &objects{}
	server := httptest.NewServer(cluster)
	t.Cleanup(server.Close)
	return &pods{
		T: t, cluster: cluster, clock: clocktesting.NewFakeClock(time.Now()), config: &rest.Config{Host: server.URL},
		keepers: map[rune]*keeper{}, authorities: map[rune]string{},
	}
}

// look has servers look at the registration, one after the other.
func (p *pods) look(servers string) {
	p.Helper()
	for _, name := range servers {
		if p.keepers[name] == nil {
			files, err := servingcert.Ensure(p.Context(), p.TempDir())
			if err != nil {
				p.Fatal(err)
			}
			text, err := os.ReadFile(files.CAFile)
			if err != nil {
				p.Fatal(err)
			}
			p.authorities[name] = string(decodeAll(text)[0])
			p.keepers[name] = &keeper{Self: &Self{
				Config: p.config, ServiceNamespace: "ns", ServiceName: "self", Clock: p.clock, Authority: func(context.Context) ([]byte, error) { return text, nil },
			}}
		}
		p.keepers[name].look(p.Context())
	}
}

// trusted returns whose authorities the registration has.
func (p *pods) trusted() string {
	p.Helper()
	var object unstructured.Unstructured
	if err := json.Unmarshal(p.cluster.apiService, &object.Object); err != nil {
		p.Fatal(err)
	}
	bundle, err := bundleOf(&object)
	if err != nil {
		p.Fatal(err)
	}
	var names []rune
	for _, certificate := range decodeAll(bundle) {
		for name, authority := range p.authorities {
			if string(certificate) == authority {
				names = append(names, name)
			}
		}
	}
	return string(names)
}

func TestOnlyAnAPIServiceOfAServerHasATrustedAuthority(t *testing.T) {
	for name, test := range map[string]struct {
		apiService string
		want       error
	}{
		"none":           {"", servingcert.ErrNotRegistered},
		"of definitions": {`{"metadata":{"resourceVersion":"7","labels":{"kube-aggregator.kubernetes.io/automanaged":"true"}}}`, servingcert.ErrNotRegistered},
		"of a server":    {`{"metadata":{"resourceVersion":"7"},"spec":{"service":{"namespace":"ns","name":"self"},"caBundle":"eA=="}}`, nil},
		"of another one": {`{"metadata":{"resourceVersion":"7"},"spec":{"service":{"namespace":"ns","name":"other"},"caBundle":"eA=="}}`, servingcert.ErrNotRegistered},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPods(t)
			if test.apiService != "" {
				p.cluster.apiService = []byte(strings.Replace(test.apiService, "{", `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService",`, 1))
			}
			trust, err := NewTrust(p.config, types.NamespacedName{Namespace: "ns", Name: "self"})
			if err != nil {
				t.Fatal(err)
			}
			bundle, version, err := trust.Trusted(t.Context())
			if !errors.Is(err, test.want) || err == nil && (string(bundle) != "x" || version != "7") {
				t.Errorf("bundle %q, version %q, error %v", bundle, version, err)
			}
		})
	}
}

func TestServersTrustEachOthersAuthorities(t *testing.T) {
	const years = 24 * 365 * time.Hour
	for name, test := range map[string]struct {
		reason string
		// first look in this order, and then those that go on, again and again, after a while.
		first, goOn string
		after       time.Duration
		want        string
	}{
		"one":                    {"", "a", "a", 0, "a"},
		"two during a rollout":   {"The former one serves until the next one is available.", "ab", "ab", 0, "ba"},
		"one after a rollout":    {"It does not know that the other one is gone.", "ab", "b", 0, "ba"},
		"as many as may be":      {"", "abcdefgh", "hgfedcba", 0, "hgfedcba"},
		"many rollouts":          {"Those that are gone longest make room.", "abcdefghijkl", "l", 0, "lkjihgfe"},
		"one that outlives many": {"It adds its own again, and the others who are there keep theirs.", "abcdefghi", "ai", 0, "aihgfedc"},
		"expired ones":           {"Nothing that they signed is valid.", "abc", "c", 11 * years, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPods(t)
			p.look(test.first)
			p.clock.Step(test.after)
			p.look(test.goOn)
			writes := p.cluster.writes
			p.look(test.goOn)
			p.look(test.goOn)
			if p.cluster.writes != writes {
				t.Errorf("%d more writes when all are known", p.cluster.writes-writes)
			}
			if got := p.trusted(); got != test.want {
				t.Errorf("%s trusted are %q, want %q", test.reason, got, test.want)
			}
		})
	}
}

// What an operator takes out, because its key may be known, stays away, and what a rotation puts beside stays there.
func TestAServerAddsNothingButItsOwnAuthority(t *testing.T) {
	p := newPods(t)
	p.look("a")
	alone := p.cluster.apiService
	p.look("b")
	both := p.cluster.apiService
	for _, stored := range [][]byte{alone, both} {
		p.cluster.apiService = stored
		writes := p.cluster.writes
		p.look("a")
		if p.cluster.writes != writes {
			t.Errorf("it was written: %s", p.trusted())
		}
	}
	p.cluster.points(t, "other")
	former := slices.Clone(p.cluster.apiService)
	p.look("abc")
	if !bytes.Equal(p.cluster.apiService, former) || strings.Contains(p.trusted(), "c") {
		t.Errorf("the registration of another server trusts %s", p.trusted())
	}
}

func TestManifestsPointToTheServer(t *testing.T) {
	objects, err := manifests(Options{Host: "server.test", Port: 8443, CABundle: []byte("authority")})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*unstructured.Unstructured{}
	var order []string
	for _, object := range objects {
		if _, err := resourceFor(dynamic.NewForConfigOrDie(&rest.Config{}), object); err != nil {
			t.Error(err)
		}
		found[describe(object)] = object
		order = append(order, object.GetKind())
	}
	if order[0] != "Namespace" || order[len(order)-1] != "APIService" {
		t.Errorf("applied in order %v; the namespace must be there first, and the cluster asks for the server as soon as the "+
			"APIService is there", order)
	}
	for _, name := range []string{
		"Namespace metacontroller", "ClusterRole metacontroller-apiserver", "ClusterRole metacontroller-controllers",
		"ClusterRole aggregate-metacontroller-view", "ClusterRole aggregate-metacontroller-edit",
		"Role metacontroller/metacontroller-apiserver:leader-election",
	} {
		if found[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	service := found["Service metacontroller/metacontroller-apiserver"]
	if service == nil {
		t.Fatal("the Service is missing")
	}
	host, _, _ := unstructured.NestedString(service.Object, "spec", "externalName")
	kind, _, _ := unstructured.NestedString(service.Object, "spec", "type")
	_, selects, _ := unstructured.NestedMap(service.Object, "spec", "selector")
	if host != "server.test" || kind != "ExternalName" || selects {
		t.Errorf("Service has host %q, type %q, selector %v", host, kind, selects)
	}
	apiService := found["APIService "+APIServiceName]
	if apiService == nil {
		t.Fatal("the APIService is missing")
	}
	port, _, _ := unstructured.NestedInt64(apiService.Object, "spec", "service", "port")
	bundle, _, _ := unstructured.NestedString(apiService.Object, "spec", "caBundle")
	if port != 8443 || bundle != base64.StdEncoding.EncodeToString([]byte("authority")) {
		t.Errorf("APIService has port %d and authority %q", port, bundle)
	}
}

func TestNobodyGetsRightsThatAreNotUsed(t *testing.T) {
	objects, err := manifests(Options{Host: "localhost", Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if strings.HasSuffix(object.GetKind(), "Binding") || object.GetKind() == "ServiceAccount" {
			t.Errorf("%s is applied for a server that acts as the user of its kubeconfig", describe(object))
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := Options{Config: &rest.Config{}, Host: "localhost", Port: 6443, CABundle: []byte("authority")}
	for name, test := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"Good":          {change: func(*Options) {}},
		"IPv4":          {change: func(o *Options) { o.Host = "192.0.2.1" }},
		"NoConfig":      {change: func(o *Options) { o.Config = nil }, want: "no configuration"},
		"NoPort":        {change: func(o *Options) { o.Port = 0 }, want: "port 0 is not between"},
		"HugePort":      {change: func(o *Options) { o.Port = 65536 }, want: "port 65536 is not between"},
		"NoHost":        {change: func(o *Options) { o.Host = "" }, want: `host ""`},
		"HostWithPort":  {change: func(o *Options) { o.Host = "localhost:6443" }, want: `host "localhost:6443"`},
		"IPv6":          {change: func(o *Options) { o.Host = "::1" }, want: "use a DNS name"},
		"NoAuthority":   {change: func(o *Options) { o.CABundle = nil }, want: "no certificate authority"},
		"NegativeWait":  {change: func(o *Options) { o.Timeout = -1 }, want: "is negative"},
		"AllOfThemSaid": {change: func(o *Options) { *o = Options{} }, want: "no certificate authority"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			test.change(&o)
			err := o.Validate()
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestWhatARoleLacks(t *testing.T) {
	rule := func(groups, resources, verbs []string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: groups, Resources: resources, Verbs: verbs, ResourceNames: names}
	}
	list := func(texts ...string) []string { return texts }
	everything := rule(list("*"), list("*"), list("*"))
	for name, test := range map[string]struct {
		wants, has []rbacv1.PolicyRule
		lacks      []string
	}{
		"nothing": {
			wants: []rbacv1.PolicyRule{rule(list(""), list("pods", "secrets"), list("get", "list"))},
			has:   []rbacv1.PolicyRule{rule(list(""), list("secrets"), list("list", "get")), rule(list(""), list("pods"), list("get")), rule(list(""), list("pods"), list("list"))},
		},
		"nothing of what is everything": {
			wants: []rbacv1.PolicyRule{rule(list("apps"), list("deployments/status"), list("patch"), "a"), everything},
			has:   []rbacv1.PolicyRule{everything},
		},
		"everything": {
			wants: []rbacv1.PolicyRule{everything},
			has:   []rbacv1.PolicyRule{rule(list("apps"), list("*"), list("*"))},
			lacks: list("* * in *"),
		},
		"verbs": {
			wants: []rbacv1.PolicyRule{rule(list("", "apps"), list("deployments"), list("get", "patch", "update"))},
			has:   []rbacv1.PolicyRule{rule(list("apps"), list("deployments"), list("get")), rule(list(""), list("deployments"), list("*"))},
			lacks: list("patch, update deployments in apps"),
		},
		"other names": {
			wants: []rbacv1.PolicyRule{rule(list(""), list("secrets"), list("get"), "a", "b")},
			has:   []rbacv1.PolicyRule{rule(list(""), list("secrets"), list("get"), "a")},
			lacks: list("get secrets b"),
		},
		"all names": {
			wants: []rbacv1.PolicyRule{rule(list(""), list("secrets"), list("get"))},
			has:   []rbacv1.PolicyRule{rule(list(""), list("secrets"), list("get"), "a")},
			lacks: list("get secrets"),
		},
		"a subresource that all resources give": {
			wants: []rbacv1.PolicyRule{rule(list(""), list("pods/status", "pods/log"), list("get"))},
			has:   []rbacv1.PolicyRule{rule(list(""), list("*/status", "pods"), list("get"))},
			lacks: list("get pods/log"),
		},
		"URLs": {
			wants: []rbacv1.PolicyRule{{NonResourceURLs: list("/metrics", "/livez/etcd"), Verbs: list("get")}},
			has:   []rbacv1.PolicyRule{{NonResourceURLs: list("/livez/*"), Verbs: list("get")}},
			lacks: list("get /metrics"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.lacks, uncovered(test.wants, test.has)); diff != "" {
				t.Errorf("it lacks (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// objects answers requests for a registration and its owner, one at a time. What the API makes of them is tested at a control plane,
// in test/integration/registration.
type objects struct {
	// owner is the UID of the ClusterRole, empty for none.
	owner string
	// apiService is the registration, nil for none.
	apiService []byte
	writes     int
	// definition is the name of the CustomResourceDefinition that there is, empty for none.
	definition string
}

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	found := []byte(nil)
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/apiservices/"+APIServiceName):
		if r.Method == http.MethodPatch {
			o.apiService, _ = io.ReadAll(r.Body)
			o.writes++
		}
		found = o.apiService
	case o.definition != "" && strings.HasSuffix(path, "/customresourcedefinitions/"+o.definition):
		found = []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"` + o.definition + `"}}`)
	case strings.HasSuffix(path, "/clusterroles/owner") && o.owner != "":
		found = []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"owner","uid":"` + o.owner + `"}}`)
	}
	if found == nil {
		w.WriteHeader(http.StatusNotFound)
		found = []byte(`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
	}
	_, _ = w.Write(found)
}

// points has the registration point to a Service of a name.
func (o *objects) points(t *testing.T, name string) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(o.apiService, &object); err != nil {
		t.Fatal(err)
	}
	object["spec"].(map[string]any)["service"].(map[string]any)["name"] = name
	var err error
	if o.apiService, err = json.Marshal(object); err != nil {
		t.Fatal(err)
	}
}

func TestARegistrationThatGoesAway(t *testing.T) {
	const (
		deleted = "The registration of this server was deleted"
		failed  = "Cannot register this server"
	)
	for name, test := range map[string]struct {
		owner string
		// change is what somebody does to the cluster after the server was registered.
		change func(t *testing.T, o *objects)
		// back says whether the server is registered after that, and logged is what is said, once; empty for nothing.
		back   bool
		logged string
	}{
		"nothing happens":                           {owner: "owner", change: func(*testing.T, *objects) {}, back: true},
		"somebody takes the server out":             {owner: "owner", change: func(_ *testing.T, o *objects) { o.apiService = nil }, logged: deleted},
		"the same without an owner":                 {change: func(_ *testing.T, o *objects) { o.apiService = nil }, logged: deleted},
		"the installation is removed":               {owner: "owner", change: func(_ *testing.T, o *objects) { o.apiService, o.owner = nil, "" }, logged: failed},
		"it goes with an owner that is another now": {owner: "owner", change: func(_ *testing.T, o *objects) { o.apiService, o.owner = nil, "2" }, back: true},
		"it outlives its owner for a while":         {owner: "owner", change: func(_ *testing.T, o *objects) { o.owner = "2" }, back: true},
		"another server takes the group":            {owner: "owner", change: func(t *testing.T, o *objects) { o.points(t, "other") }, logged: failed},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &objects{owner: "1"}
			server := httptest.NewServer(cluster)
			defer server.Close()
			files, err := servingcert.Ensure(t.Context(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			missing, logs := true, &bytes.Buffer{}
			ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logs))))
			k := keeper{Self: &Self{
				Config: &rest.Config{Host: server.URL}, ServiceNamespace: "ns", ServiceName: "self", Owner: test.owner,
				Authority: func(context.Context) ([]byte, error) { return os.ReadFile(files.CAFile) },
				Missing:   func(now bool) { missing = now },
			}}
			k.look(ctx)
			if missing || cluster.writes != 1 {
				t.Fatalf("after the start the registration was written %d times, and is missing: %v\n%s", cluster.writes, missing, logs)
			}
			logs.Reset()
			test.change(t, cluster)
			for range 3 {
				k.look(ctx)
			}
			if missing == test.back {
				t.Errorf("it is told as missing: %v", missing)
			}
			if test.back {
				if !strings.Contains(string(cluster.apiService), `"name":"self"`) || test.owner != "" && !strings.Contains(string(cluster.apiService), `"uid":"`+cluster.owner+`"`) {
					t.Errorf("the registration is %s", cluster.apiService)
				}
			} else if cluster.writes != 1 {
				t.Error("it was written again")
			}
			for _, message := range []string{deleted, failed} {
				want := 0
				if message == test.logged {
					want = 1
				}
				if got := strings.Count(logs.String(), message); got != want {
					t.Errorf("%q was logged %d times, want %d:\n%s", message, got, want, logs)
				}
			}
		})
	}
}

// What is put back by somebody else counts, and its next deletion is told again.
func TestARegistrationThatIsDeletedTwice(t *testing.T) {
	cluster := &objects{}
	server := httptest.NewServer(cluster)
	defer server.Close()
	files, err := servingcert.Ensure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	logs := &bytes.Buffer{}
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logs))))
	k := keeper{Self: &Self{
		Config: &rest.Config{Host: server.URL}, ServiceNamespace: "ns", ServiceName: "self",
		Authority: func(context.Context) ([]byte, error) { return os.ReadFile(files.CAFile) },
	}}
	k.look(ctx)
	stored := cluster.apiService
	for _, there := range [][]byte{nil, nil, stored, nil} {
		cluster.apiService = there
		k.look(ctx)
	}
	if got := strings.Count(logs.String(), "was deleted"); got != 2 {
		t.Errorf("two deletions were logged %d times:\n%s", got, logs)
	}
}

// Metacontroller may be installed again, of which its definitions are seen, and nothing else.
func TestDefinitionsThatComeBack(t *testing.T) {
	cluster := &objects{}
	server := httptest.NewServer(cluster)
	defer server.Close()
	files, err := servingcert.Ensure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	hidden, logs := -1, &bytes.Buffer{}
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logs))))
	k := keeper{Self: &Self{
		Config: &rest.Config{Host: server.URL}, ServiceNamespace: "ns", ServiceName: "self",
		Authority: func(context.Context) ([]byte, error) { return os.ReadFile(files.CAFile) },
		Hidden:    func(definitions int) { hidden = definitions },
	}}
	const name, come, gone = "compositecontrollers.metacontroller.k8s.io", "The cluster has CustomResourceDefinitions", "the group that this server serves are gone"
	for _, step := range []struct {
		what string
		// definition is there then, and the registration if it is not taken away.
		definition   string
		unregistered bool
		// hidden are counted, and come and gone logged so far.
		hidden, come, gone int
	}{
		{"there are none", "", false, 0, 0, 0},
		{"one comes", name, false, 1, 1, 0},
		{"it stays", name, false, 1, 1, 0},
		{"it goes", "", false, 0, 1, 1},
		{"it comes again", name, false, 1, 2, 1},
		{"somebody takes the server out", name, true, 0, 2, 1},
	} {
		cluster.definition = step.definition
		if step.unregistered {
			cluster.apiService = nil
		}
		k.look(ctx)
		if hidden != step.hidden || strings.Count(logs.String(), come) != step.come || strings.Count(logs.String(), gone) != step.gone {
			t.Errorf("%s: %d are hidden, want %d; the log is\n%s", step.what, hidden, step.hidden, logs)
		}
	}
}

func TestAServiceOfAServerInTheClusterSaysHowToRegisterIt(t *testing.T) {
	objects, err := readManifest("service.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkService(objects[0]); err == nil || !strings.Contains(err.Error(), "restart its Pod") {
		t.Errorf("got %v", err)
	}
}
